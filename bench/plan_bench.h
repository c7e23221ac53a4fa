// What planning costs on the host: one core, warm, medians.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "attention/attention.h"
#include "core/core.h"

namespace headwater::bench {

struct PlanBenchOptions {
  bool gate = false;       // a case over its budget is an error
  uint32_t repeats = 200;  // measured plans a case and path, after as many / 10 for warming up
  attention::PlanSettings settings;
  attention::CostModel cost{.rows_tile = 16, .key_tile = 2};  // fixed, not this machine's: the cases share everywhere
  attention::DeviceShape device{.workers = 16, .kv_heads = 8, .group = 4};
};

// Writes one JSON line a case, {"case", "sequences", "page_ids", "path", "reason", "groups", "depth", "items",
// "us_from_scratch", "us_incremental"}, and a last line {"summary": true, "cases", "over_budget"}. Incremental steps
// append one token to every sequence. An error when a case that must share is planned flat.
Status run_plan_bench(const PlanBenchOptions& options, std::ostream& json);

}  // namespace headwater::bench
