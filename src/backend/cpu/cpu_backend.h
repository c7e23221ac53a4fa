// Vectorised back end for x86-64: scalar, AVX2, AVX-512 and AVX-512 with BF16/VNNI targets, chosen once when created.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace headwater::backend::cpu {

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config);

}  // namespace headwater::backend::cpu
