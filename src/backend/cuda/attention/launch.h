// Which kernel runs an attend, and its launch. The choice depends on the pool, the variant and the device alone, so it is
// the same for every step of a layer.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/attention/call.h"

namespace headwater::backend::cuda {

enum class KvElement : uint8_t { kF32, kF16, kBF16, kF8 };

struct AttendLaunch {
  cudaStream_t stream = nullptr;
  uint32_t blocks = 0;  // the device's multiprocessors
  bool is_invariant = false;
  bool is_alone = false;  // claim.h
};

// Every element, head sizes that are multiples of 4 up to 256, any group. Its states are invariant.
cudaError_t launch_generic(KvElement element, const AttendCall& call, const AttendLaunch& launch);

// The kernel of compute capability 9.0 for an element and head size; null: there is none, use the generic one.
using LaunchAttend = cudaError_t (*)(const AttendCall& call, const AttendLaunch& launch);
LaunchAttend hopper_variant(KvElement element, uint32_t head_dim, uint32_t group);

}  // namespace headwater::backend::cuda
