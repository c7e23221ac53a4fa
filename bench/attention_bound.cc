#include "bench/attention_bound.h"

#include <algorithm>

namespace headwater::bench {

AttentionWork planned_work(const attention::Outcome& outcome, double token_keys, uint32_t page_size, uint32_t q_len) {
  const double keys_shared =
      static_cast<double>(outcome.tokens_saved) + static_cast<double>(outcome.shared_pages) * page_size;
  return {token_keys, std::min(token_keys, keys_shared * q_len), outcome.bytes_unique, outcome.bytes_read};
}

AttentionWork flat_work(const attention::Outcome& outcome, double token_keys) {
  return {token_keys, 0, outcome.bytes_unique, outcome.bytes_flat};
}

AttentionBound attention_bound(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads,
                               const ops::Peaks& peaks) {
  const double width = kv.head_dim + kv.v_head_dim;
  const double rows_keys = work.token_keys * q_heads;
  const double rows_keys_shared = work.token_keys_shared * q_heads;
  const double arithmetic = rows_keys_shared * width / peaks.multiply_adds_per_s +
                            (rows_keys - rows_keys_shared) * width / peaks.multiply_adds_flat_per_s +
                            rows_keys / peaks.weights_per_s;
  const double repeated = static_cast<double>(std::max(work.bytes_read, work.bytes_unique) - work.bytes_unique);
  const double reading =
      static_cast<double>(work.bytes_unique) / peaks.memory_bytes_per_s + repeated / peaks.cache_bytes_per_s;
  return {arithmetic, reading};
}

AttentionBound device_bound(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads,
                            const ops::Peaks& peaks, double read_floor_us) {
  const double multiply_adds = work.token_keys * q_heads * (kv.head_dim + kv.v_head_dim);
  return {multiply_adds / peaks.multiply_adds_per_s, read_floor_us * 1e-6};
}

double attention_bound_s(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads, const ops::Peaks& peaks) {
  return attention_bound(work, kv, q_heads, peaks).seconds();
}

}  // namespace headwater::bench
