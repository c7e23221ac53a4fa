// Vectorised back end for x86-64: scalar, AVX2, AVX-512, AVX-512 with BF16/VNNI and with AMX, chosen once when created:
// config.cpu_target, else the environment variable HEADWATER_CPU_TARGET, else the best that the processor has.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace headwater::backend::cpu {

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config);

// Whether products read this type's blocks. The others of is_weight_type() are decoded before each product: the same
// answers, slower.
bool has_kernel(DType dtype);

}  // namespace headwater::backend::cpu
