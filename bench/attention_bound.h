// The time that measured peaks allow for the attention of one step and layer: the larger of arithmetic and reading.
//
//   arithmetic  query heads x (query token, visible key) pairs x (key width + value width) multiply-adds, plus one
//   softmax
//               weight a row and key. Pairs attended in shared items at the rate of full row tiles, the others at the
//               rate of a flat item's few rows.
//   reading     unique bytes at the memory's rate, repeated bytes at the private cache's rate
#pragma once

#include "attention/plan.h"
#include "ops/backend.h"

namespace headwater::bench {

struct AttentionWork {
  double token_keys = 0;         // (query token, visible key) pairs
  double token_keys_shared = 0;  // of these, in items of several sequences
  uint64_t bytes_unique = 0;
  uint64_t bytes_read = 0;
};

// The work of one layer as a plan's outcome describes it. q_len: query tokens a sequence.
AttentionWork planned_work(const attention::Outcome& outcome, double token_keys, uint32_t page_size, uint32_t q_len);
// The same step attended flat.
AttentionWork flat_work(const attention::Outcome& outcome, double token_keys);

struct AttentionBound {
  double arithmetic_s = 0;
  double reading_s = 0;
  double seconds() const { return arithmetic_s > reading_s ? arithmetic_s : reading_s; }
};

// peaks: measured.
AttentionBound attention_bound(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads,
                               const ops::Peaks& peaks);
// The same on a device: matrix work at its matrix rate, whichever plan; reading as measured (Backend::read_floor_us of
// the unique bytes).
AttentionBound device_bound(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads,
                            const ops::Peaks& peaks, double read_floor_us);
double attention_bound_s(const AttentionWork& work, const ops::KvShape& kv, uint32_t q_heads, const ops::Peaks& peaks);

}  // namespace headwater::bench
