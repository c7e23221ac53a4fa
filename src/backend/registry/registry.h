// Door of the wing: the one place that knows which back ends this build has.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "ops/backend.h"

namespace headwater::backend {

struct BackendRow {
  std::string_view name;
  std::string_view summary;
  Result<std::unique_ptr<ops::Backend>> (*create)(const ops::BackendConfig& config);
};

std::span<const BackendRow> backends();

// "auto" takes the fastest one that works here. Unknown names: kInvalidArgument listing the known ones.
Result<std::unique_ptr<ops::Backend>> create_backend(std::string_view name, const ops::BackendConfig& config);

}  // namespace headwater::backend
