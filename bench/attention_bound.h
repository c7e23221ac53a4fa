// The time that measured peaks allow for the attention of one step and layer: the larger of arithmetic and reading.
//
//   arithmetic  query heads x (query token, visible key) pairs x (key width + value width) multiply-adds, at the rate
//   of the
//               instruction that attention uses
//   reading     unique bytes at the memory's rate, repeated bytes at the private cache's rate
// The arithmetic is the same however the step is planned; what sharing saves is repeated reading.
#pragma once

#include "attention/plan.h"
#include "ops/backend.h"

namespace headwater::bench {

struct AttentionWork {
  double token_keys = 0;  // (query token, visible key) pairs
  uint64_t bytes_unique = 0;
  uint64_t bytes_read = 0;
};

double attention_bound_s(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads, const ops::Peaks& peaks);

}  // namespace headwater::bench
