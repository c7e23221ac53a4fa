// The launches of mix_experts().
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/products/few.h"
#include "backend/cuda/step/step.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kExpertsMax = 256;

struct ChooseCall {
  Rows router_logits;  // f32 [tokens, experts]
  uint32_t tokens, experts, used;
  bool renormalize;
  uint32_t* choices;  // [tokens * used]
  float* weights;     // [tokens * used]
};
cudaError_t launch_choose(const ChooseCall& call, cudaStream_t stream);

// order: the slots of expert 0, then of 1, ...; begins: [experts + 1].
cudaError_t launch_group(const uint32_t* choices, uint32_t slots, uint32_t experts, uint32_t* order, uint32_t* begins,
                         cudaStream_t stream);

// For every slot of every expert: out[part] = x row * transpose(weight) + bias.
struct GroupedCall {
  static constexpr uint32_t kPartsMax = 2;
  FewWeight weights[kPartsMax][kExpertsMax];
  Rows out[kPartsMax];  // [slots]
  uint32_t parts, experts;
  uint32_t rows;          // of a weight
  uint32_t pairs;         // of blocks of its columns
  Rows x;                 // BF16; F32 of F32 weights
  uint32_t slots_of_row;  // row of x = slot / this
  const uint32_t* order;
  const uint32_t* begins;
};
cudaError_t launch_grouped(Coding coding, const GroupedCall& call, cudaStream_t stream);

// out[token] = sum of weights[slot] * rows[slot] over its slots, in their order.
cudaError_t launch_mix(const Rows& rows, const float* weights, uint32_t used, const Rows& out, Extent extent,
                       cudaStream_t stream);

}  // namespace headwater::backend::cuda
