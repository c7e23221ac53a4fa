#include "backend/cuda/attention/costs.h"

#include <algorithm>

#include "backend/cuda/attention/policy.h"

namespace headwater::backend::cuda {
namespace {

// At 512 bytes of key and value and 128 columns, all multiprocessors at work; measured as docs/kernels/attention-cuda.md says.
struct Costs {
  double step;                     // launch and first loads
  double item;                     // beyond what overlaps with the item before
  double unsettled;                // its partial written, counted in
  double key_repeat;               // from L2
  double key_alone, key_at_least;  // by one stream of a block: by its bytes, and in any case; 0: not told apart
  uint32_t rows_tile;
  double tile;            // both products and the softmax of so many rows and one key
  double row, row_cheap;  // loaded, written, merged; the code of many rows fetched: the first slab's, those beyond
  double merge_state;     // of the rows that have the most
};
constexpr double kKeyFirst = 15.8;  // 4.28 TB/s over 132
constexpr double kPartial = 32;     // 512 bytes written and read again
constexpr double kMerge = 2500;     // from the last partial to the output

// The values with which the planner chooses best among the plans that were timed, in the cells of
// bench/baselines/flashinfer_grid.json: sharing off and always, pieces of 19 sizes.
constexpr Costs kAdaptive{.step = 4000,
                          .item = 800,
                          .unsettled = 930,
                          .key_repeat = 6.7,
                          .key_alone = 6.75,
                          .key_at_least = 5.3,
                          .rows_tile = 8,
                          .tile = 1.07,
                          .row = 135,
                          .row_cheap = 20,
                          .merge_state = 425};
// Every job takes the way of many rows, whose products have 64, and writes a state for every cut.
constexpr Costs kInvariant{.step = 7000,
                           .item = 2000,
                           .unsettled = 3500,
                           .key_repeat = 9.0,
                           .key_alone = 0,
                           .key_at_least = 0,
                           .rows_tile = kSlabRows,
                           .tile = 8.0,
                           .row = 20,
                           .row_cheap = 20,
                           .merge_state = 90};

}  // namespace

attention::CostModel attention_costs(const ops::KvShape& shape, bool is_invariant) {
  const Costs& costs = is_invariant ? kInvariant : kAdaptive;
  const double bytes = static_cast<double>(shape.bytes_token_layer()) / shape.kv_heads / 512;
  const double width = attend_policy(shape.head_dim).head_dim / 128.0;
  attention::CostModel cost;
  cost.step = costs.step;
  cost.item = costs.item;
  cost.key_first = kKeyFirst * bytes;
  cost.key_repeat = costs.key_repeat * bytes;
  cost.key_far = costs.key_repeat * bytes;
  cost.key_alone = costs.key_alone * bytes + costs.key_at_least;
  cost.overlap = 1;
  cost.rows_tile = costs.rows_tile;
  cost.key_tile = costs.tile * width;
  cost.row = costs.row * std::min(width, 1.0);
  cost.rows_dear = kSlabRows;
  cost.row_cheap = costs.row_cheap * std::min(width, 1.0);
  cost.partial = kPartial * width;
  cost.unsettled = costs.unsettled;
  cost.merge = kMerge;
  cost.merge_state = costs.merge_state;
  cost.gain_min = 0.02;
  return cost;
}

}  // namespace headwater::backend::cuda
