// What attention costs one multiprocessor while the others work as well, in nanoseconds for one KV head: the planner's cost
// model. Measured on an H200 (docs/kernels/attention-cuda.md); scaled by the bytes of a key and the head size.
#pragma once

#include "attention/plan.h"
#include "ops/kv_pool.h"

namespace headwater::backend::cuda {

attention::CostModel attention_costs(const ops::KvShape& shape, bool is_invariant);

}  // namespace headwater::backend::cuda
