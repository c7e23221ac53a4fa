#include "backend/cuda/experts/call.h"
#include "backend/cuda/products/few.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kMixThreads = 256;

struct RowsOfSlots {
  const Rows& x;
  const uint32_t* slots;
  uint32_t slots_of_row;
  __device__ const __nv_bfloat16* row(uint32_t i) const {
    return static_cast<const __nv_bfloat16*>(x.data) + slots[i] / slots_of_row * x.stride;
  }
};

// A block: a tile of one weight of one expert, for all its slots.
template <typename Coding>
__global__ void __launch_bounds__(kFewThreads) multiply_grouped(const __grid_constant__ GroupedCall call) {
  const uint32_t expert = blockIdx.y, part = blockIdx.z;
  const uint32_t end = call.begins[expert + 1];
  const FewWeight& weight = call.weights[part][expert];
  for (uint32_t begin = call.begins[expert]; begin < end; begin += kFewTokens) {
    const uint32_t* slots = call.order + begin;
    const auto store = [&](uint32_t i, uint32_t row, float sum) {
      if (row >= call.rows) return;
      if (weight.bias != nullptr) sum += weight.bias[row];
      store_to(call.out[part], slots[i], row, sum);
    };
    multiply_tile<Coding, kFewTokens / kTokensTile>(weight, call.blocks, blockIdx.x,
                                                    RowsOfSlots{call.x, slots, call.slots_of_row},
                                                    min(end - begin, kFewTokens), store);
  }
}

// F32 weights and rows, exactly: a warp a row of the weight. Not made for speed: models that are stored so are small.
__global__ void __launch_bounds__(kFewThreads) multiply_grouped_f32(const __grid_constant__ GroupedCall call) {
  const uint32_t expert = blockIdx.y, part = blockIdx.z, lane = threadIdx.x % kLanes;
  const FewWeight& weight = call.weights[part][expert];
  const uint64_t columns = uint64_t{call.blocks} * kBlockColumns;
  for (uint32_t row = blockIdx.x * kTileRows + threadIdx.x / kLanes; row < call.rows; row += kFewWarps) {
    if (row >= (blockIdx.x + 1) * kTileRows) break;
    const float* values = static_cast<const float*>(weight.quants) + row * columns;
    for (uint32_t i = call.begins[expert]; i < call.begins[expert + 1]; ++i) {
      const uint32_t slot = call.order[i];
      const float* x = static_cast<const float*>(call.x.data) + slot / call.slots_of_row * call.x.stride;
      float sum = 0;
      for (uint64_t c = lane; c < columns; c += kLanes) sum += values[c] * x[c];
      for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
      if (lane == 0) store_to(call.out[part], slot, row, sum + (weight.bias == nullptr ? 0 : weight.bias[row]));
    }
  }
}

__global__ void mix(Rows rows, const float* weights, uint32_t used, Rows out, uint32_t columns) {
  const uint32_t c = blockIdx.y * kMixThreads + threadIdx.x;
  if (c >= columns) return;
  const uint64_t token = blockIdx.x;
  float sum = 0;
  for (uint64_t slot = token * used; slot < (token + 1) * used; ++slot) {
    sum += weights[slot] * static_cast<const float*>(rows.data)[slot * rows.stride + c];
  }
  store_to(out, token, c, sum);
}

}  // namespace

cudaError_t launch_grouped(Coding coding, const GroupedCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<uint32_t>(tiles_of(call.rows)), call.experts, call.parts);
  if (coding == Coding::kNone) {
    multiply_grouped_f32<<<grid, kFewThreads, 0, stream>>>(call);
    return cudaGetLastError();
  }
  return with_coding(coding, [&](auto of) {
    multiply_grouped<decltype(of)><<<grid, kFewThreads, 0, stream>>>(call);
    return cudaGetLastError();
  });
}

cudaError_t launch_mix(const Rows& rows, const float* weights, uint32_t used, const Rows& out, Extent extent,
                       cudaStream_t stream) {
  const dim3 grid(extent.rows, (extent.columns + kMixThreads - 1) / kMixThreads);
  mix<<<grid, kMixThreads, 0, stream>>>(rows, weights, used, out, extent.columns);
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda
