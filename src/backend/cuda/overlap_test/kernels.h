// A kernel that lets the next one begin long before it writes, and one that reads what that wrote.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace headwater::backend::cuda::overlap_test {

cudaError_t launch_write_late(uint32_t* to, cudaStream_t stream);  // writes 1
const void* kernel_of_this_build();                                // that one
cudaError_t launch_copy_of_older_code(const uint32_t* from, uint32_t* to, cudaStream_t stream);

}  // namespace headwater::backend::cuda::overlap_test
