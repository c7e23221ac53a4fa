// What goes into the engine and what comes out of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/core.h"
#include "ops/sampling.h"

namespace headwater::engine {

using RequestId = uint64_t;  // given by submit(), never re-used

struct SamplingParams {
  uint32_t tokens_max = 16;  // generated tokens, at most; >= 1
  uint32_t tokens_min = 0;   // stop ids are banned before
  float temperature = 1.0f;  // [0, 2]; 0: greedy
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  uint64_t seed = 0;
  std::vector<ops::LogitBias> logit_bias;
  std::vector<TokenId> stop_ids;  // the answer ends with one of these (which is emitted, flagged as the stop)
  bool ignore_stop_ids = false;
  bool want_logprobs = false;
  uint32_t top_logprobs = 0;
};

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  uint32_t n = 1;  // choices; prompt pages are shared by fork
  std::string cache_salt;
  int32_t priority = 0;  // smaller first; equal ones by arrival
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kFailed };
const char* to_string(FinishReason reason);

// One generated token, or the end of a choice.
struct Emission {
  RequestId request = 0;
  uint32_t choice = 0;
  TokenId token = -1;                         // -1: none (a choice that ended without one: cancelled, failed)
  FinishReason finish = FinishReason::kNone;  // of this choice, with its last token
  uint32_t cached_tokens = 0;                 // prompt tokens taken from the prefix cache (first emission of a choice)
  int64_t made_ns = 0;                        // when the token was sampled, on the engine's clock
  float logprob = 0;                          // when asked for
  uint32_t top_count = 0;
  ops::TokenLogprob top[ops::kLogprobsMax];
};

}  // namespace headwater::engine
