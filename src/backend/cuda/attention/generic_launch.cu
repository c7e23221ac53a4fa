#include "backend/cuda/attention/generic_kernel.cuh"
#include "backend/cuda/attention/launch.h"

namespace headwater::backend::cuda {
namespace {

template <typename Element>
cudaError_t launch_element(const AttendCall& call, const AttendLaunch& launch) {
  constexpr uint32_t kBytesMax = GenericShape::shared_bytes(256), kBlocksEach = 4;
  const cudaError_t allowed =
      cudaFuncSetAttribute(attend_generic<Element>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytesMax);
  if (allowed != cudaSuccess) return allowed;
  attend_generic<Element><<<launch.blocks * kBlocksEach, GenericShape::kThreads,
                            GenericShape::shared_bytes(call.head_dim), launch.stream>>>(call);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_generic(KvElement element, const AttendCall& call, const AttendLaunch& launch) {
  switch (element) {
    case KvElement::kF32:
      return launch_element<float>(call, launch);
    case KvElement::kF16:
      return launch_element<__half>(call, launch);
    case KvElement::kBF16:
      return launch_element<__nv_bfloat16>(call, launch);
    case KvElement::kF8:
      return launch_element<__nv_fp8_e4m3>(call, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace headwater::backend::cuda
