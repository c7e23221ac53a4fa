// What the engine counts, as typed values. Names of an exposition format are somebody else's business.
#pragma once

#include <array>

#include "attention/plan.h"
#include "observe/observe.h"

namespace headwater::engine {

inline constexpr std::array kSecondsBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                              1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
inline constexpr std::array kPlanBounds = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3};
inline constexpr std::array kTokensBounds = {1.0,   2.0,    5.0,    10.0,   20.0,    50.0,    100.0,   200.0,
                                             500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0};
using TokensHistogram = observe::Histogram<kTokensBounds.size()>;
using SecondsHistogram = observe::Histogram<kSecondsBounds.size()>;
using PlanHistogram = observe::Histogram<kPlanBounds.size()>;

struct EngineMetrics {
  // State now.
  observe::Gauge requests_running, requests_waiting, kv_cache_usage, shared_prefix_groups, shared_prefix_depth;

  // Since start.
  observe::Counter steps;
  observe::Counter prompt_tokens, generation_tokens;         // prompts whole, once per request
  observe::Counter tokens_computed;                          // rows of the batches: all that went through the model
  observe::Counter prefix_cache_queries, prefix_cache_hits;  // tokens, once per request
  observe::Counter preemptions, forks, copies_on_write, evictions, pages_merged, waits_for_prefix;
  std::array<observe::Counter, 5> finished;            // by FinishReason
  std::array<observe::Counter, 3> attention_steps;     // by attention::Path
  std::array<observe::Counter, 3> attention_launches;  // layers x steps, by path
  std::array<observe::Counter, attention::kNotSharedKinds> attention_not_shared;
  observe::Counter attention_failures;
  observe::Counter shared_prefix_tokens;  // tokens not read again: sum of len * (members - 1), per step
  observe::Counter shared_prefix_members;
  observe::Counter nested_group_steps;                        // steps with depth >= 2
  observe::Counter kv_bytes_read_actual, kv_bytes_read_flat;  // all layers

  // Distributions.
  SecondsHistogram time_to_first_token{kSecondsBounds}, inter_token_latency{kSecondsBounds}, end_to_end{kSecondsBounds},
      queue_time{kSecondsBounds}, prefill_time{kSecondsBounds}, decode_time{kSecondsBounds},
      time_per_output_token{kSecondsBounds};  // of a choice: decode time over its tokens after the first
  TokensHistogram request_prompt_tokens{kTokensBounds}, request_generation_tokens{kTokensBounds},  // a choice each
      step_tokens{kTokensBounds};
  PlanHistogram plan_seconds{kPlanBounds};
};

}  // namespace headwater::engine
