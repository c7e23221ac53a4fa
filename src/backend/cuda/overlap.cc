#include <map>
#include <utility>

#include "backend/cuda/overlap.cuh"

namespace headwater::backend::cuda {

bool is_compiled_to_wait(const void* kernel) {
  constexpr int kFirstArchitecture = 90;
  thread_local std::map<std::pair<int, const void*>, bool> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const auto [entry, is_new] = known.try_emplace({device, kernel}, false);
  if (is_new) {
    cudaFuncAttributes code{};
    entry->second = cudaFuncGetAttributes(&code, kernel) == cudaSuccess && code.ptxVersion >= kFirstArchitecture;
  }
  return entry->second;
}

}  // namespace headwater::backend::cuda
