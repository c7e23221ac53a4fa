#pragma once

#include "backend/cuda/attention/hopper_kernel.cuh"
#include "backend/cuda/attention/launch.h"

namespace headwater::backend::cuda {

template <typename Element, uint32_t kHeadDim, bool kInvariant>
cudaError_t launch_hopper_kernel(const AttendCall& call, const AttendLaunch& launch) {
  constexpr uint32_t kBytes = sizeof(HopperShared<kAttendPolicy<kHeadDim>>);
  static_assert(kBytes <= kSharedBytesMax);
  const auto kernel = attend_hopper<Element, kHeadDim, kInvariant>;
  // At every launch: it is a property of the current device, and cheap.
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  if (allowed != cudaSuccess) return allowed;
  // Blocks wait for each other's partials, so all of them have to be there (claim.h).
  cudaLaunchAttribute attributes[2]{};
  attributes[0] = early_begin(reinterpret_cast<const void*>(kernel));
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = launch.blocks;
  config.blockDim = kBlockThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = launch.stream;
  config.attrs = attributes;
  config.numAttrs = launch.is_alone ? 1 : 2;
#ifdef HEADWATER_KERNEL_CLOCKS
  static_assert(kStampingWarps == kBlockThreads / kWarp);
  HopperCall clocked{call, nullptr};
  if (const cudaError_t made = stamps_of(launch.blocks, &clocked.stamps); made != cudaSuccess) return made;
  return cudaLaunchKernelEx(&config, kernel, clocked);
#else
  return cudaLaunchKernelEx(&config, kernel, call);
#endif
}

template <typename Element, uint32_t kHeadDim>
cudaError_t launch_hopper(const AttendCall& call, const AttendLaunch& launch) {
  return launch.is_invariant ? launch_hopper_kernel<Element, kHeadDim, true>(call, launch)
                             : launch_hopper_kernel<Element, kHeadDim, false>(call, launch);
}

}  // namespace headwater::backend::cuda
