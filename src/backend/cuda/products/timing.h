// Which of several ways to do the same work is fastest here, asked once and then known.
#pragma once

#include <functional>

#include "backend/cuda/runtime.h"

namespace headwater::backend::cuda {

bool is_recording(cudaStream_t stream);

// The shortest of a few runs of what `enqueue` puts on the stream, in milliseconds; waits for it. Before each run `scratch` is
// overwritten: where it is as large as the L2, nothing of the operands is left there.
Result<float> shortest_ms(const std::function<Status()>& enqueue, const DeviceBuffer& scratch, cudaStream_t stream);

}  // namespace headwater::backend::cuda
