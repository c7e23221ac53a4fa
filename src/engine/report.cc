#include "engine/core_engine.h"

namespace headwater::engine {

void CoreEngine::report(const StepInFlight* step) {
  outcome_ = step == nullptr ? attention::Outcome() : step->outcome;
  if (step != nullptr) report_outcome(*step);
  metrics_.shared_prefix_groups.set(outcome_.groups);
  metrics_.shared_prefix_depth.set(outcome_.depth);
  report_state();
}

void CoreEngine::report_outcome(const StepInFlight& step) {
  const auto path = static_cast<size_t>(outcome_.path);
  const uint64_t layers = sizing_.kv.layers;
  metrics_.steps.add();
  metrics_.step_tokens.observe(step.tokens);
  metrics_.attention_steps[path].add();
  metrics_.attention_launches[path].add(layers);
  for (size_t i = 0; i < attention::kNotSharedKinds; ++i) metrics_.attention_not_shared[i].add(outcome_.not_shared[i]);
  const bool failed = outcome_.not_shared[static_cast<size_t>(attention::NotShared::kFailed)] > 0;
  if (failed) metrics_.attention_failures.add();
  metrics_.shared_prefix_tokens.add(outcome_.tokens_saved);
  metrics_.shared_prefix_members.add(outcome_.members_total);
  if (outcome_.depth >= 2) metrics_.nested_group_steps.add();
  metrics_.kv_bytes_read_actual.add(outcome_.bytes_read * layers);
  metrics_.kv_bytes_read_flat.add(outcome_.bytes_flat * layers);

  // Kinds 0 to 2 are the paths; a flat step is one kind per reason.
  if (outcome_.path == attention::Path::kFlat) {
    const attention::NotShared reason = outcome_.reason();
    if (!logged_.first(3 + static_cast<uint32_t>(reason))) return;
    observe::logger().log(failed ? spdlog::level::warn : spdlog::level::info, "attention: flat ({}), {} sequences",
                          attention::to_string(reason), step.rows.size());
  } else if (logged_.first(static_cast<uint32_t>(path))) {
    observe::logger().info(
        "attention: {}, {} groups, depth {}, {} of {} sequences, {} pages attended once, {} tokens not read again",
        attention::to_string(outcome_.path), outcome_.groups, outcome_.depth, outcome_.members_total, step.rows.size(),
        outcome_.shared_pages, outcome_.tokens_saved);
  }
}

void CoreEngine::report_state() {
  const kv::CacheCounters& now = cache_.counters();
  metrics_.forks.add(now.forks - counted_.forks);
  metrics_.copies_on_write.add(now.pages_copied - counted_.pages_copied);
  metrics_.evictions.add(now.pages_evicted - counted_.pages_evicted);
  metrics_.pages_merged.add(now.pages_merged - counted_.pages_merged);
  counted_ = now;
  metrics_.requests_running.set(static_cast<double>(running_.size()));
  metrics_.requests_waiting.set(static_cast<double>(waiting_.size()));
  metrics_.kv_cache_usage.set(static_cast<double>(cache_.pages_held()) / cache_.config().pages);
}

}  // namespace headwater::engine
