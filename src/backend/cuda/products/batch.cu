#include "backend/cuda/products/batch.cuh"

#include <algorithm>
#include <array>

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kBlocksEach = 2;  // of a multiprocessor: as many as fit
constexpr uint32_t kPairsMin = 4;    // of a slice

template <typename Coding, uint32_t kTokens, bool kIsGated>
__global__ void __launch_bounds__(kBatchThreads, kBlocksEach) multiply_batch(const __grid_constant__ BatchCall call) {
  extern __shared__ __align__(1024) unsigned char batch_memory[];
  let_next_begin();
  multiply_batch_block<Coding, kTokens, kIsGated>(call, reinterpret_cast<BatchShared<Coding, kTokens>&>(batch_memory));
}

// For clusters of 1 to kBatchSplits blocks: how many the current device has places for at the same time. They do not cross its
// groups of multiprocessors.
using Places = std::array<uint32_t, kBatchSplits + 1>;

template <typename Coding, uint32_t kTokens, bool kIsGated>
Places count_places() {
  Places places{};
  for (uint32_t splits = 1; splits <= kBatchSplits; ++splits) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {splits, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = splits;
    config.blockDim = kBatchThreads;
    config.dynamicSmemBytes = sizeof(BatchShared<Coding, kTokens>);
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, multiply_batch<Coding, kTokens, kIsGated>, &config) != cudaSuccess) {
      cudaGetLastError();  // CUDA's memory of it
      break;
    }
    places[splits] = static_cast<uint32_t>(clusters);
  }
  return places;
}

template <typename Coding, uint32_t kTokens, bool kIsGated>
Places places_of_device() {
  thread_local std::array<Places, 16> known{};  // by device; those beyond are asked every time
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= static_cast<int>(known.size())) {
    return count_places<Coding, kTokens, kIsGated>();
  }
  Places& places = known[static_cast<size_t>(device)];
  if (places[1] == 0) places = count_places<Coding, kTokens, kIsGated>();
  return places;
}

template <typename Coding, uint32_t kTokens, bool kIsGated>
cudaError_t launch(BatchCall call, cudaStream_t stream) {
  constexpr uint32_t kBytes = sizeof(BatchShared<Coding, kTokens>);
  static_assert(kBytes <= kFewSharedBytes);
  const auto kernel = multiply_batch<Coding, kTokens, kIsGated>;
  const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (allowed != cudaSuccess) return allowed;
  const Places places = places_of_device<Coding, kTokens, kIsGated>();
  if (places[1] == 0) return cudaErrorNotSupported;
  const FewCall& product = call.product;
  const uint32_t groups = product.tiles() / kGroupTiles;
  // A sixth of the places is left to blocks of other kernels: a cluster that finds none would begin when all the others have ended.
  for (uint32_t splits = 2; !kIsGated && splits <= kBatchSplits && splits * kPairsMin <= product.pairs; ++splits) {
    if (groups * 6 <= places[splits] * 5) call.splits = splits;
  }
  const uint32_t blocks = call.splits > 1 ? groups * call.splits : std::min(groups, places[1]);
  return launch_overlapping_clusters(kernel, call.splits, blocks, kBatchThreads, kBytes, stream, call);
}

template <typename Coding, bool kIsGated>
cudaError_t launch_for_tokens(const BatchCall& call, cudaStream_t stream) {
  switch (batch_rows(call.product.tokens)) {
    case 16:
      return launch<Coding, 16, kIsGated>(call, stream);
    case 32:
      return launch<Coding, 32, kIsGated>(call, stream);
    default:
      return launch<Coding, kBatchTokens, kIsGated>(call, stream);
  }
}

}  // namespace

cudaError_t launch_batch(Coding coding, const BatchCall& call, cudaStream_t stream) {
  return with_coding(coding, [&](auto of) { return launch_for_tokens<decltype(of), false>(call, stream); });
}

cudaError_t launch_gated_batch(const BatchCall& call, cudaStream_t stream) {
  return launch_for_tokens<DenseCoding, true>(call, stream);
}

}  // namespace headwater::backend::cuda
