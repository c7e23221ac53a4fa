// What the device reaches in a short measurement: reading its memory, and products that keep its tensor cores busy.
#pragma once

#include "backend/cuda/runtime.h"
#include "ops/backend.h"

namespace headwater::backend::cuda {

Result<ops::Peaks> measure_peaks(const Stream& stream);

}  // namespace headwater::backend::cuda
