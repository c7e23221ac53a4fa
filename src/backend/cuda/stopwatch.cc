#include "backend/cuda/stopwatch.h"

#include <algorithm>
#include <limits>

namespace headwater::backend::cuda {
namespace {

constexpr uint64_t kFlushBytes = uint64_t{256} << 20;
constexpr uint32_t kRepeatsMax = 20;
constexpr double kGraphUs = 20'000;    // of the work in one graph, about
constexpr uint64_t kSpinNs = 300'000;  // longer than the host needs to launch a graph

}  // namespace

Result<std::unique_ptr<GraphStopwatch>> GraphStopwatch::create(const Stream& stream, const std::function<void()>& work,
                                                               bool is_cold) {
  std::unique_ptr<GraphStopwatch> watch(new GraphStopwatch(stream));
  watch->is_cold_ = is_cold;
  HEADWATER_ASSIGN_OR_RETURN(watch->begin_, Event::create());
  HEADWATER_ASSIGN_OR_RETURN(watch->end_, Event::create());
  HEADWATER_ASSIGN_OR_RETURN(watch->flushed_, DeviceBuffer::create(kFlushBytes));
  work();  // first runs load code; not while recording
  HEADWATER_RETURN_IF_ERROR(stream.wait());
  HEADWATER_ASSIGN_OR_RETURN(const Graph once, Graph::record(stream, work));
  HEADWATER_RETURN_IF_ERROR(once.launch(stream));
  HEADWATER_ASSIGN_OR_RETURN(const double once_us, watch->time_us(once));
  watch->repeats_ = static_cast<uint32_t>(std::clamp<double>(kGraphUs / once_us, 3, kRepeatsMax));
  cudaError_t flushed = cudaSuccess;
  const auto flush = [&] {
    const cudaError_t result = launch_flush(watch->flushed_.data(), kFlushBytes, stream.get());
    if (result != cudaSuccess) flushed = result;
  };
  HEADWATER_ASSIGN_OR_RETURN(watch->work_, Graph::record(stream, [&] {
                               for (uint32_t i = 0; i < watch->repeats_; ++i) {
                                 if (is_cold) flush();
                                 work();
                               }
                             }));
  if (is_cold) {
    HEADWATER_ASSIGN_OR_RETURN(watch->flush_, Graph::record(stream, [&] {
                                 for (uint32_t i = 0; i < watch->repeats_; ++i) flush();
                               }));
  }
  HEADWATER_RETURN_IF_ERROR(checked(flushed, "emptying the L2"));
  return watch;
}

Result<double> GraphStopwatch::time_us(const Graph& graph) {
  HEADWATER_RETURN_IF_ERROR(checked(launch_spin(kSpinNs, stream_.get()), "timing"));
  HEADWATER_RETURN_IF_ERROR(checked(cudaEventRecord(begin_.get(), stream_.get()), "timing"));
  HEADWATER_RETURN_IF_ERROR(graph.launch(stream_));
  HEADWATER_RETURN_IF_ERROR(checked(cudaEventRecord(end_.get(), stream_.get()), "timing"));
  HEADWATER_RETURN_IF_ERROR(checked(cudaEventSynchronize(end_.get()), "timed work"));
  float milliseconds = 0;
  HEADWATER_RETURN_IF_ERROR(checked(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "timing"));
  return static_cast<double>(milliseconds) * 1e3;
}

Result<double> GraphStopwatch::sample_us() {
  HEADWATER_ASSIGN_OR_RETURN(const double work_us, time_us(work_));
  if (!is_cold_) return work_us / repeats_;
  HEADWATER_ASSIGN_OR_RETURN(const double flush_us, time_us(flush_));
  return (work_us - flush_us) / repeats_;
}

Result<double> read_floor_us(const Stream& stream, const DeviceBuffer& memory, uint64_t bytes, uint32_t piece_bytes) {
  double best_us = std::numeric_limits<double>::infinity();
  for (const uint32_t blocks : {264u, 528u, 1056u, 2112u}) {
    for (const uint32_t unroll : {1u, 2u, 4u}) {
      cudaError_t launched = cudaSuccess;
      const auto work = [&] {
        const cudaError_t result =
            launch_read(memory.data(), memory.size(), bytes, piece_bytes, {blocks, unroll}, stream.get());
        if (result != cudaSuccess) launched = result;
      };
      HEADWATER_ASSIGN_OR_RETURN(const auto watch, GraphStopwatch::create(stream, work, true));
      HEADWATER_RETURN_IF_ERROR(checked(launched, "reading"));
      std::vector<double> samples;
      for (int i = 0; i < 5; ++i) {
        HEADWATER_ASSIGN_OR_RETURN(const double us, watch->sample_us());
        samples.push_back(us);
      }
      std::nth_element(samples.begin(), samples.begin() + 2, samples.end());
      best_us = std::min(best_us, samples[2]);
    }
  }
  return best_us;
}

}  // namespace headwater::backend::cuda
