#include "backend/cuda/tensor_map.h"

#include <fmt/ranges.h>

#include <array>

#include "backend/cuda/runtime.h"

namespace headwater::backend::cuda {
namespace {

struct Driver {
  decltype(&cuTensorMapEncodeTiled) encode_tiled;
};

// The one driver function this program needs; found at run time, so that nothing links against the driver.
Result<Driver> find_driver() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  HEADWATER_RETURN_IF_ERROR(
      checked(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
              "cuTensorMapEncodeTiled"));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return error(ErrorCode::kUnsupported,
                 "the driver has no cuTensorMapEncodeTiled; use a driver for CUDA 12 or later");
  }
  return Driver{reinterpret_cast<decltype(Driver::encode_tiled)>(function)};
}

}  // namespace

Result<CUtensorMap> create_tensor_map(const TensorView& view) {
  static const Result<Driver> driver = find_driver();
  if (!driver) return driver.status();
  constexpr std::array<cuuint32_t, 5> kSteps = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = driver->encode_tiled(
      &map, view.type, static_cast<cuuint32_t>(view.sizes.size()), const_cast<void*>(view.base), view.sizes.data(),
      view.strides.data(), view.box.data(), kSteps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  return error(ErrorCode::kUnsupported,
               "the driver refuses copies of a tensor at {} with strides of {} bytes (code {}); addresses and strides "
               "must be multiples of 16",
               view.base, fmt::join(view.strides, ", "), static_cast<int>(result));
}

}  // namespace headwater::backend::cuda
