#include <algorithm>

#include "backend/cuda/device.h"
#include "backend/cuda/products/few.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kBlocksEach = 2;  // of a multiprocessor: as many as fit

// Tile blockIdx.x, and every gridDim.x-th from there.
struct TilesInTurn {
  static constexpr bool kWeightsAhead = true;
  const FewCall& call;
  uint32_t count;

  struct Pass {
    struct RowsInOrder {
      const Rows* x;
      __device__ const __nv_bfloat16* row(uint32_t token) const {
        return static_cast<const __nv_bfloat16*>(x->data) + token * x->stride;
      }
    };
    const FewCall::Part* part;
    const FewWeight* weight;
    uint32_t tile;  // of the part
    RowsInOrder x;
    uint32_t tokens;
    __device__ void store(uint32_t token, uint32_t row, float sum) const { store_sum(*part, token, row, sum); }
  };
  __device__ Pass at(uint32_t n) const {
    const FewCall::PartTile at = call.part_of(blockIdx.x + n * gridDim.x);
    const FewCall::Part& part = call.parts[at.part];
    return {&part, &part.weight, at.tile, {&call.x}, call.tokens};
  }
};

template <typename Coding, uint32_t kTokens>
__global__ void __launch_bounds__(kFewThreads<kTokens>, kBlocksEach)
    multiply_few(const __grid_constant__ FewCall call) {
  let_next_begin();
  const uint32_t tiles = call.tiles();
  multiply_passes<Coding, kTokens>(TilesInTurn{call, (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x}, call.pairs);
}

template <typename Coding, uint32_t kTokens>
cudaError_t launch(const FewCall& call, cudaStream_t stream) {
  const auto kernel = multiply_few<Coding, kTokens>;
  const cudaError_t allowed = allow_passes<Coding, kTokens>(kernel);
  if (allowed != cudaSuccess) return allowed;
  const uint32_t blocks = std::min(call.tiles(), kBlocksEach * device_attribute(cudaDevAttrMultiProcessorCount));
  return launch_overlapping(kernel, blocks, kFewThreads<kTokens>, sizeof(FewShared<Coding, kTokens>), stream, call);
}

}  // namespace

cudaError_t launch_few(Coding coding, const FewCall& call, cudaStream_t stream) {
  return with_coding(coding, [&](auto of) {
    using Of = decltype(of);
    if (call.tokens == 1) return launch<Of, 1>(call, stream);
    if (call.tokens <= 8) return launch<Of, 8>(call, stream);
    return launch<Of, kFewTokens>(call, stream);
  });
}

}  // namespace headwater::backend::cuda
