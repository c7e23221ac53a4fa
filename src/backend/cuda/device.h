// What the current device has.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace headwater::backend::cuda {

// 0: the device does not say.
inline uint32_t device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess)
    return 0;
  return static_cast<uint32_t>(value);
}

}  // namespace headwater::backend::cuda
