// The serving bench: levels of load on one or more arms. For each level the arms take turns (A B A B ...), with the same
// prompts; each level's figures are printed beside what the server's counters say it ran.
//
// Errors (kInternal), after everything was printed: a request failed (429 and clients that vanish on purpose do not
// count) or all were rejected, two arms' texts differ, the arm 'off' took shared-prefix steps.
#pragma once

#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/serve/arm.h"

namespace headwater::bench::serve {

struct ServeBenchOptions {
  WorkloadShape workload;
  std::vector<uint32_t> concurrency{1, 4, 16, 64};  // the levels; with a request rate there is one
  uint32_t requests = 0;                            // of a level; 0: 4 per client
  LoadShape load;                                   // its concurrency and seed are the level's
  bool metrics = false;
  uint32_t repetitions = 3;
  uint32_t warm_up = 4;   // requests to each arm before the first level; not counted, not compared
  bool progress = false;  // a line on standard error, written over
};

// table, json: null when not wanted.
Status run_serve_bench(const ServeBenchOptions& options, std::span<const std::unique_ptr<Arm>> arms,
                       std::ostream* table, std::ostream* json);

}  // namespace headwater::bench::serve
