#include "backend/cuda/experts/call.h"
#include "backend/cuda/products/few.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kMixThreads = 256, kThreads = kFewThreads<kFewTokens>, kWarps = kThreads / kLanes;

// A tile of one weight of one expert, with its slots, kFewTokens at a time.
struct SlotsInTurn {
  static constexpr bool kWeightsAhead = false;
  const GroupedCall& call;
  const FewWeight& weight;
  uint32_t begin, end;  // of the expert's slots
  uint32_t count = (end - begin + kFewTokens - 1) / kFewTokens;

  struct Pass {
    struct RowsOfSlots {
      const GroupedCall* call;
      const uint32_t* slots;
      __device__ const __nv_bfloat16* row(uint32_t i) const {
        return static_cast<const __nv_bfloat16*>(call->x.data) + slots[i] / call->slots_of_row * call->x.stride;
      }
    };
    const FewWeight* weight;
    uint32_t tile;
    RowsOfSlots x;
    uint32_t tokens;
    __device__ void store(uint32_t i, uint32_t row, float sum) const {
      if (row >= x.call->rows) return;
      if (weight->bias != nullptr) sum += weight->bias[row];
      store_to(x.call->out[blockIdx.z], x.slots[i], row, sum);
    }
  };
  __device__ Pass at(uint32_t n) const {
    const uint32_t first = begin + n * kFewTokens;
    return {&weight, blockIdx.x, {&call, call.order + first}, min(end - first, kFewTokens)};
  }
};

// A block: a tile of one weight (z) of one expert (y).
template <typename Coding>
__global__ void __launch_bounds__(kThreads) multiply_grouped(const __grid_constant__ GroupedCall call) {
  const uint32_t begin = call.begins[blockIdx.y], end = call.begins[blockIdx.y + 1];
  if (begin == end) return;
  multiply_passes<Coding, kFewTokens>(SlotsInTurn{call, call.weights[blockIdx.z][blockIdx.y], begin, end}, call.pairs);
}

// F32 weights and rows, exactly: a warp a row of the weight. Not made for speed: models that are stored so are small.
__global__ void __launch_bounds__(kThreads) multiply_grouped_f32(const __grid_constant__ GroupedCall call) {
  const uint32_t expert = blockIdx.y, part = blockIdx.z, lane = threadIdx.x % kLanes;
  const FewWeight& weight = call.weights[part][expert];
  const uint64_t columns = uint64_t{call.pairs} * kPairColumns;
  for (uint32_t row = blockIdx.x * kTileRows + threadIdx.x / kLanes; row < call.rows; row += kWarps) {
    if (row >= (blockIdx.x + 1) * kTileRows) break;
    const float* values = static_cast<const float*>(weight.data) + row * columns;
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
    multiply_grouped_f32<<<grid, kThreads, 0, stream>>>(call);
    return cudaGetLastError();
  }
  return with_coding(coding, [&](auto of) {
    using Of = decltype(of);
    const auto kernel = multiply_grouped<Of>;
    // At every launch: it is a property of the current device, and cheap.
    const cudaError_t allowed = allow_passes<Of, kFewTokens>(kernel);
    if (allowed != cudaSuccess) return allowed;
    kernel<<<grid, kThreads, sizeof(FewShared<Of, kFewTokens>), stream>>>(call);
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
