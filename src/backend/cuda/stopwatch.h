// Device time of recorded work, and of a program that only reads: the two figures of the attention benches.
//
// Graph A repeats (empty the L2 by writing 256 MiB, work), graph B only the emptying; a sample is (A - B) / repeats. So the
// launch is counted and the host is not. Warm: graph A repeats the work alone.
#pragma once

#include "backend/cuda/runtime.h"
#include "backend/cuda/stopwatch_kernels.h"
#include "ops/backend.h"

namespace headwater::backend::cuda {

class GraphStopwatch final : public ops::Stopwatch {
 public:
  static Result<std::unique_ptr<GraphStopwatch>> create(const Stream& stream, const std::function<void()>& work,
                                                        bool is_cold);
  Result<double> sample_us() override;
  // Launches of the recorded work that are not the emptying: kernels, copies.
  size_t nodes_each() const { return (work_.nodes() - (is_cold_ ? repeats_ : 0)) / repeats_; }

 private:
  explicit GraphStopwatch(const Stream& stream) : stream_(stream) {}
  Result<double> time_us(const Graph& graph);

  const Stream& stream_;
  bool is_cold_ = true;
  uint32_t repeats_ = 1;
  DeviceBuffer flushed_;
  Graph work_, flush_;
  Event begin_, end_;
};

// The time of the fastest of a few grids that read `bytes` of `memory` in pieces at scattered places, cold.
Result<double> read_floor_us(const Stream& stream, const DeviceBuffer& memory, uint64_t bytes, uint32_t piece_bytes);

}  // namespace headwater::backend::cuda
