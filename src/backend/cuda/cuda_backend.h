// NVIDIA GPUs. A build without CUDA links absent.cc, whose create() says so.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace headwater::backend::cuda {

extern const bool kIsBuilt;  // false: absent.cc

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config);

}  // namespace headwater::backend::cuda
