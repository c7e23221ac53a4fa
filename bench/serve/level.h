// The figures of one level: what its answers add up to, and by how much the server's counters moved.
#pragma once

#include <boost/json.hpp>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>

#include "bench/serve/answer.h"
#include "bench/serve/distribution.h"
#include "bench/serve/exposition.h"

namespace headwater::bench::serve {

// Deltas over one level.
struct CounterDeltas {
  bool attention = false;  // the server counts attention steps: it is a headwater
  double flat_steps = 0, shared_steps = 0, mixed_steps = 0;
  double shared_prefix_tokens = 0, kv_bytes_actual = 0, kv_bytes_flat = 0;
  double prefix_queries = 0, prefix_hits = 0;  // tokens

  static CounterDeltas between(const Exposition& before, const Exposition& after);
  bool shared() const { return shared_steps + mixed_steps > 0; }
};

struct LevelFigures {
  std::string arm;
  uint32_t concurrency = 0;  // 0: open loop
  double request_rate = 0;
  uint32_t repetition = 0;  // from 1
  uint64_t requests = 0, completed = 0, rejected = 0, retry_after = 0, vanished = 0;
  std::map<std::string, uint64_t> failures;                          // by HTTP status or kind
  std::string first_message;                                         // of a failure
  uint64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of completed answers
  double seconds = 0, requests_per_s = 0, output_tokens_per_s = 0, client_cpu_share = 0;
  Distribution ttft_ms, itl_ms, tpot_ms, rejected_ms;  // rejected: time to the 429
  std::optional<CounterDeltas> deltas;

  uint64_t failed() const;
};

// The names of the level (arm, concurrency, ...) and the deltas are the caller's to fill in.
LevelFigures figures_of(const LevelResult& result);

void print_level(const LevelFigures& figures, std::ostream& out);
boost::json::object level_line(const LevelFigures& figures);

}  // namespace headwater::bench::serve
