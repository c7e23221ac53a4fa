#include "bench/attention_bound.h"

#include <algorithm>

namespace headwater::bench {

double attention_bound_s(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads, const ops::Peaks& peaks) {
  const double arithmetic = work.token_keys * q_heads * (kv.head_dim + kv.v_head_dim) / peaks.multiply_adds_per_s;
  const double repeated = static_cast<double>(std::max(work.bytes_read, work.bytes_unique) - work.bytes_unique);
  const double reading =
      static_cast<double>(work.bytes_unique) / peaks.memory_bytes_per_s + repeated / peaks.cache_bytes_per_s;
  return std::max(arithmetic, reading);
}

}  // namespace headwater::bench
