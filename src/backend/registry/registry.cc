#include "backend/registry/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"

namespace headwater::backend {
namespace {

constexpr BackendRow kBackends[] = {
    {"cpu", "AVX2 / AVX-512 kernels, all cores", cpu::create, cpu::has_kernel},
    {"reference", "plain double-precision code, the oracle of the tests", reference::create},
    {"cuda", "NVIDIA GPUs", cuda::create},
};

}  // namespace

std::span<const BackendRow> backends() {
  return kBackends;
}

Result<std::unique_ptr<ops::Backend>> create_backend(std::string_view name, const ops::BackendConfig& config,
                                                     std::string* passed_over) {
  if (name == "auto") {
    Result<std::unique_ptr<ops::Backend>> device = cuda::create(config);
    if (device) return device;
    if (cuda::kIsBuilt && passed_over != nullptr) *passed_over = device.status().message();
    return cpu::create(config);
  }
  std::vector<std::string_view> names{"auto"};
  for (const BackendRow& row : kBackends) {
    if (row.name == name) return row.create(config);
    names.push_back(row.name);
  }
  return error(ErrorCode::kInvalidArgument, "unknown back end '{}'; use one of {}", name, fmt::join(names, ", "));
}

bool may_be_gpu(std::string_view name) {
  return cuda::kIsBuilt && (name == "cuda" || name == "auto");
}

bool has_kernel(std::string_view name, DType dtype) {
  const auto* row = std::ranges::find(kBackends, name, &BackendRow::name);
  return row == std::end(kBackends) || row->has_kernel == nullptr || row->has_kernel(dtype);
}

}  // namespace headwater::backend
