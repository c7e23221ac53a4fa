// What a gate makes of a number.
#pragma once

#include "ops/activation.h"

namespace headwater::backend::cuda {

__device__ __forceinline__ float activated(ops::Activation activation, float gate, float up) {
  switch (activation) {
    case ops::Activation::kSilu:
      return gate / (1 + expf(-gate)) * up;
    case ops::Activation::kGeluTanh: {
      constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
      return 0.5f * gate * (1 + tanhf(kRoot * (gate + 0.044715f * gate * gate * gate))) * up;
    }
    default: {                                                                  // kSwigluClamped
      const float g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;  // NaN stays
      return g / (1 + expf(-1.702f * g)) * (u + 1);
    }
  }
}

}  // namespace headwater::backend::cuda
