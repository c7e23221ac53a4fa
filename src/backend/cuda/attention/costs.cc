#include "backend/cuda/attention/costs.h"

#include "backend/cuda/attention/policy.h"

namespace headwater::backend::cuda {
namespace {

// At 512 bytes of key and value and 128 columns, all multiprocessors at work.
constexpr double kStep = 7000;       // launch and first loads
constexpr double kItem = 2000;       // beyond what overlaps with the item before
constexpr double kUnsettled = 3500;  // its partial written, counted in, merged
constexpr double kKeyFirst = 15.8;   // 4.28 TB/s over 132
constexpr double kKeyRepeat = 9.0;   // from L2
constexpr double kTile = 8.0;        // both products and the softmax of 64 rows and one key
constexpr double kRow = 20;          // loaded, written
constexpr double kPartial = 15;      // 512 bytes written and read again
constexpr double kMerge = 1500;      // from the last partial to the output
constexpr double kMergeState = 90;   // four rows of a state

}  // namespace

attention::CostModel attention_costs(const ops::KvShape& shape, uint32_t q_heads) {
  const double bytes = static_cast<double>(shape.bytes_token_layer()) / shape.kv_heads / 512;
  const double width = attend_policy(shape.head_dim).head_dim / 128.0;
  attention::CostModel cost;
  cost.step = kStep;
  cost.item = kItem;
  cost.key_first = kKeyFirst * bytes;
  cost.key_repeat = kKeyRepeat * bytes;
  cost.key_far = kKeyRepeat * bytes;
  cost.overlap = 1;
  cost.rows_tile = kSlabRows;
  cost.key_tile = kTile * width;
  cost.row = kRow;
  cost.partial = kPartial * width;
  cost.unsettled = kUnsettled;
  cost.merge = kMerge;
  cost.merge_state = kMergeState * ((q_heads / shape.kv_heads + 3) / 4);  // four warps merge a row each
  cost.gain_min = 0.02;
  return cost;
}

}  // namespace headwater::backend::cuda
