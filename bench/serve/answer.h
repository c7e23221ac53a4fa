// What one request of a level got: filled by the client, or by an engine that runs in the bench itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headwater::bench::serve {

struct Answer {
  enum class End : uint8_t { kComplete, kRejected, kFailed, kVanished };  // rejected: 429; vanished: on purpose
  End end = End::kFailed;
  std::string failure;          // of kFailed: the HTTP status, or connect, closed, timeout, ...
  std::string message;          // of kFailed: what the server said, cut
  std::vector<double> chunk_s;  // seconds from the start of the request to each piece of text
  double seconds = 0;           // to the end
  uint64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;  // as the server counts them
  bool retry_after = false;                                              // of kRejected: the header was there
  std::string text;
};

// Of one level, in the order of its prompts.
struct LevelResult {
  std::vector<Answer> answers;
  double seconds = 0;
  double client_cpu_seconds = 0;  // that the client itself used meanwhile; 0 when it shares its thread with an engine
};

}  // namespace headwater::bench::serve
