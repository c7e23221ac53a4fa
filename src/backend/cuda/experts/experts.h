// ops::Backend::mix_experts() on the device. Six launches, none of which the host has to know a router's choice for:
//
//   choose   a warp a token: its experts and their weights; slot = token * used + which
//   group    one block: slots by expert
//   products gate and up of every slot, grouped by expert (few.cuh: a weight's tile is read once for every 16 of its slots)
//   gate_mul
//   products down
//   mix      a token's slots times their weights, in descending order of router logits
#pragma once

#include "backend/cuda/products/products.h"

namespace headwater::backend::cuda {

class Experts {
 public:
  // Room for mix_experts() up to this shape. kUnsupported for more experts than a launch takes.
  Status reserve(const ops::ExpertsShape& shape);
  Status run(const ops::MixExpertsParams& params, Products& products, cudaStream_t stream);

 private:
  uint64_t slots_ = 0, hidden_ = 0, columns_ = 0;
  DeviceBuffer choices_, weights_, order_, begins_;  // [slots] expert, [slots] weight, [slots] by expert, [experts + 1]
  DeviceBuffer gate_, up_, down_;                    // [slots, hidden] of BF16 or F32, likewise, [slots, columns]
};

}  // namespace headwater::backend::cuda
