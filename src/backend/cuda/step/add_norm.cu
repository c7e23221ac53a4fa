// Roofline: a row of d columns reads and writes the residual and reads the delta, 12 d bytes, and writes 2 or 4 d. At 64
// rows of 4,096 that is 3.7 MB, most of it in the L2: about a microsecond, so what counts is how soon a block has its row.
//
// A block is a row. It keeps the row in registers when it is short enough, so that each number is read once.
#include "backend/cuda/step/rows.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kKept = 16;  // columns a thread keeps: rows up to 8,192

__device__ float inverse_root(float squares, const AddNormCall& call) {
  return 1 / sqrtf(squares / static_cast<float>(call.extent.columns) + call.epsilon);
}

template <typename Out>
__global__ void __launch_bounds__(kThreads) add_norm(const __grid_constant__ AddNormCall call) {
  float* residual = row_at<float>(call.residual, blockIdx.x);
  const float* delta = call.delta.data == nullptr ? nullptr : row_at<const float>(call.delta, blockIdx.x);
  Out* out = row_at<Out>(call.out, blockIdx.x);
  // Thread t has columns t, t + kThreads, ...: the first kKept of them in registers.
  float kept[kKept];
  const auto each = [&](auto&& visit) {
#pragma unroll
    for (uint32_t i = 0; i < kKept; ++i) {
      const uint32_t c = threadIdx.x + i * kThreads;
      if (c < call.extent.columns) visit(c, kept[i]);
    }
    for (uint32_t c = threadIdx.x + kKept * kThreads; c < call.extent.columns; c += kThreads) {
      float value = residual[c];
      visit(c, value);
    }
  };
#pragma unroll
  for (uint32_t i = 0; i < kKept; ++i) {
    const uint32_t c = threadIdx.x + i * kThreads;
    kept[i] = c < call.extent.columns ? residual[c] : 0;
  }
  if (delta != nullptr) {
    float factor = call.delta_scale;
    if (call.delta_weight != nullptr) {
      float squares = 0;
      for (uint32_t c = threadIdx.x; c < call.extent.columns; c += kThreads) squares += delta[c] * delta[c];
      factor *= inverse_root(block_sum<kThreads>(squares), call);
    }
    each([&](uint32_t c, float& value) {
      const float weight = call.delta_weight == nullptr ? 1 : call.delta_weight[c];
      value += factor * delta[c] * weight;
      residual[c] = value;
    });
  }
  float scale = 1;
  if (call.weight != nullptr) {
    float squares = 0;
    each([&](uint32_t, float& value) { squares += value * value; });
    scale = inverse_root(block_sum<kThreads>(squares), call);
  }
  each([&](uint32_t c, float& value) {
    out[c] = from_float<Out>(call.weight == nullptr ? value : value * scale * call.weight[c]);
  });
}

}  // namespace

cudaError_t launch_add_norm(const AddNormCall& call, cudaStream_t stream) {
  if (call.extent.rows == 0) return cudaSuccess;
  return with_element(call.out.is_short, [&](auto* element) {
    add_norm<std::remove_pointer_t<decltype(element)>><<<call.extent.rows, kThreads, 0, stream>>>(call);
    return cudaGetLastError();
  });
}

}  // namespace headwater::backend::cuda
