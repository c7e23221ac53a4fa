#include "backend/cuda/attention/hopper_launch.cuh"
#include "backend/cuda/attention/variants.h"

namespace headwater::backend::cuda {

cudaError_t launch_hopper_bf16_256(const AttendCall& call, const AttendLaunch& launch) {
  return launch_hopper<__nv_bfloat16, 256>(call, launch);
}

}  // namespace headwater::backend::cuda
