// The memory of stamps, one in the process. Part of builds with HEADWATER_KERNEL_CLOCKS alone.
#include "backend/cuda/attention/clocks.h"

#include <mutex>
#include <vector>

#include "backend/cuda/c_interface.h"

namespace headwater::backend::cuda {
namespace {

struct {
  std::mutex mutex;
  Stamp* stamps = nullptr;
  int device = 0;  // where they are
  uint32_t blocks = 0;
  std::vector<Stamp> copied;  // what was read last
} made;

// Also while a stream is recorded: memory is no part of what is recorded.
cudaError_t allocate(uint32_t blocks) {
  if (const cudaError_t error = cudaGetDevice(&made.device); error != cudaSuccess) return error;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (const cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode); error != cudaSuccess) return error;
  const size_t warp_bytes = kStampsWarp * sizeof(Stamp);
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, (size_t{blocks} * kStampingWarps + 1) * warp_bytes);
  if (error == cudaSuccess) {
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + warp_bytes - 1) / warp_bytes * warp_bytes;
    made.stamps = reinterpret_cast<Stamp*>(begin);
    made.blocks = blocks;
  }
  const cudaError_t restored = cudaThreadExchangeStreamCaptureMode(&mode);
  return error != cudaSuccess ? error : restored;
}

}  // namespace

cudaError_t stamps_of(uint32_t blocks, Stamp** stamps) {
  const std::lock_guard lock(made.mutex);
  if (made.stamps == nullptr) {
    if (const cudaError_t error = allocate(blocks); error != cudaSuccess) return error;
  }
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  *stamps = made.stamps;
  return device == made.device && blocks <= made.blocks ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace headwater::backend::cuda

const void* headwater_attention_clocks(uint32_t* blocks) {
  using namespace headwater::backend::cuda;
  const std::lock_guard lock(made.mutex);
  *blocks = made.blocks;
  if (made.stamps == nullptr) return nullptr;
  made.copied.resize(size_t{made.blocks} * kStampingWarps * kStampsWarp);
  const cudaError_t error =
      cudaMemcpy(made.copied.data(), made.stamps, made.copied.size() * sizeof(Stamp), cudaMemcpyDeviceToHost);
  return error == cudaSuccess ? made.copied.data() : nullptr;
}
