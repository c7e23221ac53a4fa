// Roofline: a row of d columns reads and writes the residual and reads the delta, 12 d bytes, and writes 2 or 4 d. At 64
// rows of 4,096 that is 3.7 MB, most of it in the L2: about a microsecond, so what counts is the chain of a row: all of its
// loads are on their way before the first is waited for.
//
// A block is a row, in registers where it is short enough.
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/step/rows.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kThreads = 512;

__device__ float inverse_root(float squares, const AddNormCall& call) {
  return 1 / sqrtf(squares / static_cast<float>(call.extent.columns) + call.epsilon);
}

// Thread t has the pieces t, t + kThreads, ... of a row, each of Width columns. Rows of up to Pieces * kThreads pieces.
template <uint32_t Width, uint32_t Pieces>
struct Piece {
  float of[Pieces][Width];

  __device__ static uint32_t column(uint32_t piece) { return (threadIdx.x + piece * kThreads) * Width; }
  template <typename Visit>
  __device__ void each(uint32_t columns, const Visit& visit) {
#pragma unroll
    for (uint32_t p = 0; p < Pieces; ++p) {
      if (column(p) < columns) visit(column(p), of[p]);
    }
  }
  __device__ void load(const float* row, uint32_t columns) {
    each(columns, [&](uint32_t c, float(&piece)[Width]) {
      if constexpr (Width == 4) {
        *reinterpret_cast<float4*>(piece) = *reinterpret_cast<const float4*>(row + c);
      } else {
        piece[0] = row[c];
      }
    });
  }
  __device__ float squares(uint32_t columns) {
    float sum = 0;
    each(columns, [&](uint32_t, float(&piece)[Width]) {
#pragma unroll
      for (uint32_t i = 0; i < Width; ++i) sum += piece[i] * piece[i];
    });
    return sum;
  }
};

template <uint32_t Width>
__device__ void store(float* to, const float (&piece)[Width]) {
#pragma unroll
  for (uint32_t i = 0; i < Width; i += 4) {
    if constexpr (Width == 4) {
      *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(piece);
    } else {
      to[0] = piece[0];
    }
  }
}
template <uint32_t Width>
__device__ void store(__nv_bfloat16* to, const float (&piece)[Width]) {
  if constexpr (Width == 4) {
    *reinterpret_cast<uint2*>(to) = {pack<__nv_bfloat16>(piece[0], piece[1]), pack<__nv_bfloat16>(piece[2], piece[3])};
  } else {
    to[0] = from_float<__nv_bfloat16>(piece[0]);
  }
}

template <typename Out, uint32_t Width, uint32_t Pieces>
__global__ void __launch_bounds__(kThreads) add_norm(const __grid_constant__ AddNormCall call) {
  const uint32_t columns = call.extent.columns;
  float* residual_row = row_at<float>(call.residual, blockIdx.x);
  Out* out_row = row_at<Out>(call.out, blockIdx.x);
  using Own = Piece<Width, Pieces>;
  Own residual, weight;
  let_next_begin();
  if (call.weight != nullptr) weight.load(call.weight, columns);
  wait_for_kernels_ahead();
  residual.load(residual_row, columns);
  if (call.delta.data != nullptr) {
    Own delta, delta_weight;
    delta.load(row_at<const float>(call.delta, blockIdx.x), columns);
    if (call.delta_weight != nullptr) delta_weight.load(call.delta_weight, columns);
    float factor = call.delta_scale;
    if (call.delta_weight != nullptr) factor *= inverse_root(block_sum<kThreads>(delta.squares(columns)), call);
#pragma unroll
    for (uint32_t p = 0; p < Pieces; ++p) {
      if (Own::column(p) >= columns) continue;
#pragma unroll
      for (uint32_t i = 0; i < Width; ++i) {
        residual.of[p][i] += factor * delta.of[p][i] * (call.delta_weight == nullptr ? 1 : delta_weight.of[p][i]);
      }
      store<Width>(residual_row + Own::column(p), residual.of[p]);
    }
  }
  const float scale = call.weight == nullptr ? 1 : inverse_root(block_sum<kThreads>(residual.squares(columns)), call);
#pragma unroll
  for (uint32_t p = 0; p < Pieces; ++p) {
    if (Own::column(p) >= columns) continue;
    float piece[Width];
#pragma unroll
    for (uint32_t i = 0; i < Width; ++i) {
      piece[i] = call.weight == nullptr ? residual.of[p][i] : residual.of[p][i] * scale * weight.of[p][i];
    }
    store<Width>(out_row + Own::column(p), piece);
  }
}

bool is_aligned(const Rows& rows) {
  return rows.data == nullptr || (reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0);
}
bool is_aligned(const float* vector) {
  return reinterpret_cast<uintptr_t>(vector) % 16 == 0;
}

}  // namespace

cudaError_t launch_add_norm(const AddNormCall& call, cudaStream_t stream) {
  if (call.extent.rows == 0) return cudaSuccess;
  constexpr uint32_t kOne = kThreads;
  const uint32_t columns = call.extent.columns;
  const bool is_wide = columns % 4 == 0 && is_aligned(call.residual) && is_aligned(call.delta) &&
                       is_aligned(call.out) && is_aligned(call.weight) && is_aligned(call.delta_weight);
  return with_element(call.out.is_short, [&](auto* element) {
    using Out = std::remove_pointer_t<decltype(element)>;
    const auto launch = [&](auto kernel) {
      return launch_overlapping(kernel, call.extent.rows, kThreads, 0, stream, call);
    };
    if (is_wide && columns <= 4 * kOne) return launch(add_norm<Out, 4, 1>);
    if (is_wide && columns <= 8 * kOne) return launch(add_norm<Out, 4, 2>);
    if (is_wide && columns <= 16 * kOne) return launch(add_norm<Out, 4, 4>);
    if (is_wide && columns <= 64 * kOne) return launch(add_norm<Out, 4, 16>);
    if (columns <= 4 * kOne) return launch(add_norm<Out, 1, 4>);
    if (columns <= 64 * kOne) return launch(add_norm<Out, 1, 64>);
    return cudaErrorInvalidValue;  // launch_add_norm()'s limit
  });
}

}  // namespace headwater::backend::cuda
