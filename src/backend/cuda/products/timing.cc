#include "backend/cuda/products/timing.h"

#include <algorithm>
#include <limits>

namespace headwater::backend::cuda {

bool is_recording(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

Result<float> shortest_ms(const std::function<Status()>& enqueue, const DeviceBuffer& scratch, cudaStream_t stream) {
  constexpr int kRuns = 5;
  HEADWATER_ASSIGN_OR_RETURN(const Event begin, Event::create());
  HEADWATER_ASSIGN_OR_RETURN(const Event end, Event::create());
  float shortest = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    HEADWATER_RETURN_IF_ERROR(checked(cudaMemsetAsync(scratch.data(), 0, scratch.size(), stream), "timing"));
    HEADWATER_RETURN_IF_ERROR(checked(cudaEventRecord(begin.get(), stream), "timing"));
    HEADWATER_RETURN_IF_ERROR(enqueue());
    HEADWATER_RETURN_IF_ERROR(checked(cudaEventRecord(end.get(), stream), "timing"));
    HEADWATER_RETURN_IF_ERROR(checked(cudaEventSynchronize(end.get()), "timing"));
    float ms = 0;
    HEADWATER_RETURN_IF_ERROR(checked(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing"));
    shortest = std::min(shortest, ms);
  }
  return shortest;
}

}  // namespace headwater::backend::cuda
