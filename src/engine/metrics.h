// What the engine counts, as typed values. Names of an exposition format are somebody else's business.
#pragma once

#include <array>

#include "attention/plan.h"
#include "observe/observe.h"

namespace headwater::engine {

// Bounds are those of vLLM (v1/metrics/buckets.py), so that dashboards made for it fit.
inline constexpr std::array kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                                 0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                                 20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
inline constexpr std::array kTokenLatencyBounds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                                   0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
inline constexpr std::array kRequestLatencyBounds = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                                     5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                                     60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
inline constexpr std::array kStepTokensBounds = {1.0,   8.0,    16.0,   32.0,   64.0,   128.0,  256.0,
                                                 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0};
// An exposition leaves out bounds above the context.
inline constexpr std::array kRequestTokensBounds = {1.0,     2.0,      5.0,      10.0,     20.0,     50.0,    100.0,
                                                    200.0,   500.0,    1000.0,   2000.0,   5000.0,   10000.0, 20000.0,
                                                    50000.0, 100000.0, 200000.0, 500000.0, 1000000.0};
inline constexpr std::array kPlanBounds = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3};
using FirstTokenHistogram = observe::Histogram<kFirstTokenBounds.size()>;
using TokenLatencyHistogram = observe::Histogram<kTokenLatencyBounds.size()>;
using RequestLatencyHistogram = observe::Histogram<kRequestLatencyBounds.size()>;
using StepTokensHistogram = observe::Histogram<kStepTokensBounds.size()>;
using RequestTokensHistogram = observe::Histogram<kRequestTokensBounds.size()>;
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
  FirstTokenHistogram time_to_first_token{kFirstTokenBounds};
  TokenLatencyHistogram inter_token_latency{kTokenLatencyBounds};
  TokenLatencyHistogram time_per_output_token{
      kTokenLatencyBounds};  // of a choice: decode time over its tokens after the first
  RequestLatencyHistogram end_to_end{kRequestLatencyBounds}, queue_time{kRequestLatencyBounds},
      prefill_time{kRequestLatencyBounds}, decode_time{kRequestLatencyBounds};
  RequestTokensHistogram request_prompt_tokens{kRequestTokensBounds},
      request_generation_tokens{kRequestTokensBounds};  // a choice each
  StepTokensHistogram step_tokens{kStepTokensBounds};
  PlanHistogram plan_seconds{kPlanBounds};
};

}  // namespace headwater::engine
