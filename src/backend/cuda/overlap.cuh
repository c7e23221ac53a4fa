// Kernels that begin while the one ahead of them in the stream still runs (programmatic dependent launch, of code for compute
// capability 9.0 and later). A step is some three hundred short kernels: what each does before it needs another's results, and
// its launch, costs nothing this way.
//
// Who is launched with launch_overlapping() or early_begin() calls wait_for_kernels_ahead() before it touches what other kernels
// of the stream write or read, in at least one thread of every block, whatever the block has to do: the end of a kernel then
// says that all kernels ahead of it have ended too. let_next_begin() at the start lets the next one's blocks take the places
// that are left.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace headwater::backend::cuda {

__device__ __forceinline__ void wait_for_kernels_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Whether the code that the current device runs of `kernel` waits: compiled for 9.0 or later. What is compiled from older PTX
// does not, on whatever device. The driver is asked once a thread, kernel and device.
bool is_compiled_to_wait(const void* kernel);

// The attribute of a launch that lets the kernel begin early, if it waits.
inline cudaLaunchAttribute early_begin(const void* kernel) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = is_compiled_to_wait(kernel) ? 1 : 0;
  return attribute;
}

// Blocks in clusters of `cluster`.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_overlapping_clusters(void (*kernel)(Parameters...), uint32_t cluster, dim3 blocks, dim3 threads,
                                        uint32_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  // One split of the multiprocessors' memory for all: with another one a kernel would wait until everything has left.
  cudaLaunchAttribute attributes[3]{};
  attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[0].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  attributes[1] = early_begin(reinterpret_cast<const void*>(kernel));
  attributes[2].id = cudaLaunchAttributeClusterDimension;
  attributes[2].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 3 : 2;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_overlapping(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, uint32_t shared_bytes,
                               cudaStream_t stream, const Arguments&... arguments) {
  return launch_overlapping_clusters(kernel, 1, blocks, threads, shared_bytes, stream, arguments...);
}

}  // namespace headwater::backend::cuda
