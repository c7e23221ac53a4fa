#include "backend/cuda/attention/hopper_launch.cuh"
#include "backend/cuda/attention/variants.h"

namespace headwater::backend::cuda {

cudaError_t launch_hopper_f16_256(const AttendCall& call, const AttendLaunch& launch) {
  return launch_hopper<__half, 256>(call, launch);
}

}  // namespace headwater::backend::cuda
