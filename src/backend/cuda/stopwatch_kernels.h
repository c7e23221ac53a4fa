// The launches of the stopwatch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace headwater::backend::cuda {

// Reads `bytes` (up to 64 GiB; more than the memory has means some of it again) of `memory` in pieces at scattered places and does nothing else. blocks: of 256 threads, each with `unroll` (1, 2 or 4) loads of 16 bytes in flight.
struct ReadShape {
  uint32_t blocks, unroll;
};
cudaError_t launch_read(const void* memory, uint64_t memory_bytes, uint64_t bytes, uint32_t piece_bytes,
                        ReadShape shape, cudaStream_t stream);
cudaError_t launch_flush(void* memory, uint64_t bytes, cudaStream_t stream);
cudaError_t launch_spin(uint64_t nanoseconds, cudaStream_t stream);

}  // namespace headwater::backend::cuda
