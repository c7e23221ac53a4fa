// Measures attention's costs (attention_costs.h) on all workers at once, through the target's own kernels: items of several
// widths, rows and keys whose pages stay in the private cache, then the same keys read again after ever more others.
#pragma once

#include "backend/cpu/attention_costs.h"
#include "backend/cpu/thread_pool.h"

namespace headwater::backend::cpu {

// Takes about `seconds`; short times give rough figures. kExhausted without memory for the pages.
Result<AttentionCosts> measure_costs(Target target, ThreadPool& pool, double seconds);

}  // namespace headwater::backend::cpu
