// Door of the wing: the one place that knows which back ends this build has.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ops/backend.h"

namespace headwater::backend {

struct BackendRow {
  std::string_view name;
  std::string_view summary;
  Result<std::unique_ptr<ops::Backend>> (*create)(const ops::BackendConfig& config);
  bool (*has_kernel)(DType dtype) = nullptr;  // null: no type is slower for want of a kernel
};

std::span<const BackendRow> backends();

// "auto" takes the fastest one that works here: CUDA, else the CPU; passed_over, unless null, then says why not CUDA where this
// build has it. Unknown names: kInvalidArgument listing the known ones.
Result<std::unique_ptr<ops::Backend>> create_backend(std::string_view name, const ops::BackendConfig& config,
                                                     std::string* passed_over = nullptr);

// Whether this name may mean a GPU in this build.
bool may_be_gpu(std::string_view name);

// Whether products of this back end (its info().name) read weights of this type as they are. The others are decoded
// before each product: the same answers, slower.
bool has_kernel(std::string_view name, DType dtype);

}  // namespace headwater::backend
