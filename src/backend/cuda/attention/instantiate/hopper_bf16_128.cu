#include "backend/cuda/attention/hopper_launch.cuh"
#include "backend/cuda/attention/variants.h"

namespace headwater::backend::cuda {

cudaError_t launch_hopper_bf16_128(const AttendCall& call, const AttendLaunch& launch) {
  return launch_hopper<__nv_bfloat16, 128>(call, launch);
}

}  // namespace headwater::backend::cuda
