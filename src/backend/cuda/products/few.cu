#include "backend/cuda/products/few.cuh"

namespace headwater::backend::cuda {
namespace {

struct RowsInOrder {
  const Rows& x;
  __device__ const __nv_bfloat16* row(uint32_t token) const {
    return static_cast<const __nv_bfloat16*>(x.data) + token * x.stride;
  }
};

template <typename Coding, uint32_t TokenTiles>
__global__ void __launch_bounds__(kFewThreads) multiply_few(const __grid_constant__ FewCall call) {
  uint32_t index = 0;
  while (blockIdx.x >= call.parts[index].tiles_end) ++index;
  const FewCall::Part& part = call.parts[index];
  const uint32_t tile = blockIdx.x - (index == 0 ? 0 : call.parts[index - 1].tiles_end);
  multiply_tile<Coding, TokenTiles>(part.weight, call.blocks, tile, RowsInOrder{call.x}, call.tokens,
                                    [&](uint32_t token, uint32_t row, float sum) {
                                      if (row >= part.rows) return;
                                      if (part.weight.bias != nullptr) sum += part.weight.bias[row];
                                      store_to(part.out, token, row, sum);
                                    });
}

}  // namespace

cudaError_t launch_few(Coding coding, const FewCall& call, cudaStream_t stream) {
  const uint32_t tiles = call.parts[call.parts_count - 1].tiles_end;
  return with_coding(coding, [&](auto of) {
    if (call.tokens <= kTokensTile) {
      multiply_few<decltype(of), 1><<<tiles, kFewThreads, 0, stream>>>(call);
    } else {
      multiply_few<decltype(of), 2><<<tiles, kFewThreads, 0, stream>>>(call);
    }
    return cudaGetLastError();
  });
}

}  // namespace headwater::backend::cuda
