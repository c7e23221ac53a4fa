#pragma once

#include <array>

#include "backend/cuda/attention/launch.h"

namespace headwater::backend::cuda {

cudaError_t launch_hopper_bf16_64(const AttendCall& call, const AttendLaunch& launch);
cudaError_t launch_hopper_bf16_128(const AttendCall& call, const AttendLaunch& launch);
cudaError_t launch_hopper_bf16_256(const AttendCall& call, const AttendLaunch& launch);
cudaError_t launch_hopper_f16_64(const AttendCall& call, const AttendLaunch& launch);
cudaError_t launch_hopper_f16_128(const AttendCall& call, const AttendLaunch& launch);
cudaError_t launch_hopper_f16_256(const AttendCall& call, const AttendLaunch& launch);

}  // namespace headwater::backend::cuda
