// Attention of one layer, cell by cell: sharing auto against off, interleaved in one run, outputs compared first.
//
// Every arm proves what it ran: its plan's outcome is printed and asserted (off is flat; always is shared where the
// cell has a legal run). The gate compares (plan / layers + us) of auto with off's: the median ratio over pairs,
// repeated until its 95% interval lies on one side of the threshold or the repetitions end. A cell whose auto plan
// equals off's item for item passes by identity.
//
// Times are the back end's stopwatch's: on a device of a recorded graph on cold caches, on a host of the wall clock.
// Beside them stands the bound, the time that reading the unique bytes and the arithmetic allow.
//
// The planner's prediction is held against what was measured, both attend and merge of one layer: in the table pred / us of
// both arms, in the summary predicted_error_median, the median over cells and arms of |predicted_us - us| / us.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "ops/backend.h"

namespace headwater::bench {

struct AttentionBenchOptions {
  std::vector<Cell> cells;
  uint32_t layers = 32;         // over which a step's plan is spread
  uint32_t reps = 9;            // pairs, at least
  uint32_t steps = 1;           // calls of one timing, averaged
  uint32_t warmup = 1;          // pairs before the timed ones
  uint32_t reps_max = 200;      // pairs, at most
  double seconds_max = 0;       // of the whole run; 0: no limit. Cells not reached count as skipped
  uint64_t pool_bytes_max = 0;  // larger cells count as skipped; 0: half of the free memory
  double gate = 0;              // > 0: fail when a cell's ratio is above
  bool expect_shared = false;   // auto must not be flat with at least 4 sequences behind at least 2,048 tokens
  bool always = false;          // a third arm with every legal node shared
  bool invariant = true;        // where the back end promises it
  bool warm = false;            // a second time of each arm, with the caches as its last run left them
  std::string grid;             // what the cells are called together; a record's shards must agree on it
  uint32_t shard = 0, shards = 1;
  bool inject_fault = false;  // one page of one member of the auto arm is another one: the comparison must fail
  bool mislabel = false;      // the arm `off` is planned as `always`: the outcome check must fail
  std::string commit;
  std::string costs = "built in";  // where the back end's costs come from; printed
};

// Writes a table to `table` and JSON lines to `json` (either may be null). Fails when a gate or an assertion fails.
Status run_attention_bench(ops::Backend& backend, const AttentionBenchOptions& options, std::ostream* table,
                           std::ostream* json);

}  // namespace headwater::bench
