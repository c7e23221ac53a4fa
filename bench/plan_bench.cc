#include "bench/plan_bench.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "bench/workload.h"

namespace headwater::bench {
namespace {

using attention::Outcome;
using attention::Path;
using attention::Plan;
using attention::Planner;

struct PlanCase {
  std::string name;
  Cell cell;
  bool must_share = false;    // unless sharing is off
  double us_scratch_max = 0;  // budget; 0: none
  double us_incremental_max = 0;
};

// Two cases with budgets, what looking costs where nothing is shared, and the trees grid.
Result<std::vector<PlanCase>> plan_cases() {
  std::vector<PlanCase> cases{
      {"64 x 8192, one group", {.nodes = {1, 64}, .tokens = {7680, 512}}, true, 25, 5},
      {"256 x 32768, nested", {.nodes = {1, 4, 16, 256}, .tokens = {16384, 8192, 7680, 512}}, true, 150, 5},
      {"64 x 8192, nothing shared", {.nodes = {64}, .tokens = {8192}}},
      {"256 x 32768, nothing shared", {.nodes = {256}, .tokens = {32768}}},
  };
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Cell> trees, grid_cells("trees", true));
  for (const Cell& cell : trees) cases.push_back({cell.name, cell});
  return cases;
}

// The page table of a cell with pages to grow into.
struct GrowingTable {
  GrowingTable(const Cell& cell, uint32_t tokens_spare) : workload(Workload::create(longer(cell, tokens_spare))) {
    for (uint32_t& kv_len : workload.kv_len) kv_len -= tokens_spare;
    for (uint64_t version = 1; version <= workload.kv_len.size(); ++version) versions.push_back(version);
  }
  static Cell longer(Cell cell, uint32_t tokens) {
    cell.tokens.back() += tokens;
    return cell;
  }
  void grow() {
    for (uint32_t& kv_len : workload.kv_len) ++kv_len;
  }
  attention::PageTable table() const {
    attention::PageTable table = workload.table();
    table.versions = versions;
    return table;
  }
  attention::PlanLimits limits() const {
    const uint32_t sequences = static_cast<uint32_t>(workload.kv_len.size());
    return {.sequences_max = sequences,
            .tokens_max = workload.q_indptr.back(),
            .pages_per_sequence_max = static_cast<uint32_t>(workload.page_ids.size() / sequences),
            .page_size = workload.cell.page};
  }

  Workload workload;
  std::vector<uint64_t> versions;
};

struct Measured {
  double us_scratch = 0;
  double us_incremental = 0;
  uint64_t page_ids = 0;
  Outcome outcome;
};

// From scratch and incremental in turn over the same growing sequences.
Result<Measured> measure(const PlanBenchOptions& options, const Cell& cell) {
  const uint32_t warmup = options.repeats / 10;
  GrowingTable growing(cell, options.repeats + warmup);
  HEADWATER_ASSIGN_OR_RETURN(Planner scratch,
                             Planner::create(growing.limits(), options.settings, options.cost, options.device));
  HEADWATER_ASSIGN_OR_RETURN(Planner updated,
                             Planner::create(growing.limits(), options.settings, options.cost, options.device));
  const SystemClock clock;
  std::vector<double> us_scratch, us_incremental;
  Measured measured;
  HEADWATER_RETURN_IF_ERROR(updated.plan(growing.table()).status());
  for (uint32_t i = 0; i < warmup + options.repeats; ++i) {
    growing.grow();
    const int64_t start = clock.now_ns();
    HEADWATER_ASSIGN_OR_RETURN(const Plan* built, scratch.plan_from_scratch(growing.table()));
    const int64_t middle = clock.now_ns();
    HEADWATER_ASSIGN_OR_RETURN(const Plan* patched, updated.plan(growing.table()));
    const int64_t end = clock.now_ns();
    if (!patched->outcome.incremental || patched->items.size() != built->items.size()) {
      return error(ErrorCode::kInternal, "the incremental plan has {} items (incremental: {}), the one from scratch {}",
                   patched->items.size(), patched->outcome.incremental, built->items.size());
    }
    measured.outcome = built->outcome;
    if (i < warmup) continue;
    us_scratch.push_back(static_cast<double>(middle - start) * 1e-3);
    us_incremental.push_back(static_cast<double>(end - middle) * 1e-3);
  }
  measured.page_ids = growing.workload.page_ids.size();
  measured.us_scratch = median(us_scratch);
  measured.us_incremental = median(us_incremental);
  return measured;
}

}  // namespace

Status run_plan_bench(const PlanBenchOptions& options, std::ostream& json) {
  if (options.repeats == 0) return error(ErrorCode::kInvalidArgument, "0 repeats; use at least 1");
  uint32_t cases = 0;
  uint32_t over_budget = 0;
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<PlanCase> cases_to_run, plan_cases());
  for (const PlanCase& c : cases_to_run) {
    HEADWATER_ASSIGN_OR_RETURN(const Measured measured, measure(options, c.cell));
    const Outcome& outcome = measured.outcome;
    const bool shares = outcome.path != Path::kFlat;
    if (c.must_share && options.settings.sharing != attention::Sharing::kOff && !shares) {
      return error(ErrorCode::kInternal, "case \"{}\" must share, yet its plan is flat: {}", c.name,
                   to_string(outcome.reason()));
    }
    json << fmt::format(
                "{{\"case\": \"{}\", \"sequences\": {}, \"page_ids\": {}, \"path\": \"{}\", \"reason\": \"{}\", "
                "\"groups\": {}, "
                "\"depth\": {}, \"items\": {}, \"us_from_scratch\": {:.2f}, \"us_incremental\": {:.2f}}}\n",
                c.name, c.cell.batch(), measured.page_ids, to_string(outcome.path),
                shares ? "" : to_string(outcome.reason()), outcome.groups, outcome.depth, outcome.items,
                measured.us_scratch, measured.us_incremental)
         << std::flush;
    ++cases;
    over_budget += (c.us_scratch_max > 0 && measured.us_scratch > c.us_scratch_max) ||
                   (c.us_incremental_max > 0 && measured.us_incremental > c.us_incremental_max);
  }
  json << fmt::format("{{\"summary\": true, \"cases\": {}, \"over_budget\": {}}}\n", cases, over_budget);
  if (options.gate && over_budget > 0) {
    return error(ErrorCode::kInternal, "{} of {} cases are over their budget", over_budget, cases);
  }
  return {};
}

}  // namespace headwater::bench
