// The oracle: every operation in plain loops, double precision inside, any page size. Slow on purpose:
// products and attention run in double, and scratch grows when a step needs more, inside the step too.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace headwater::backend::reference {

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig& config);

}  // namespace headwater::backend::reference
