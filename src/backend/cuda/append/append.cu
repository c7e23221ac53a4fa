// Roofline: a token moves its q (read, written), k and v (read) in float and its k and v in the pool's type; at 32/8 heads of
// 128 that is 45 KiB. At 64 tokens, 3 MB: below a microsecond of memory time, so the launch is what counts, and this is
// one launch instead of four.
//
// A warp has a head of a token: queries, then keys, then values. Blocks (y) share a token's heads; each works out its angles.
#include "backend/cuda/append/append.h"

#include <cfloat>

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/overlap.cuh"

namespace headwater::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256, kLanes = 32, kWarps = kThreads / kLanes;
constexpr float kGreatestF8 = 448;

__device__ float warp_sum(float x) {
  for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

__device__ float warp_largest(float x) {
  for (uint32_t offset = kLanes / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

__device__ float norm_scale(float squares, uint32_t columns, float epsilon) {
  return 1 / sqrtf(squares / static_cast<float>(columns) + epsilon);
}

// Of the norm over all heads of a token's row.
__device__ float row_scale(const float* row, uint32_t columns, float epsilon) {
  __shared__ float sums[kWarps];
  float squares = 0;
  for (uint32_t c = threadIdx.x; c < columns; c += kThreads) squares += row[c] * row[c];
  squares = warp_sum(squares);
  __syncthreads();  // the sums of a call before are read
  if (threadIdx.x % kLanes == 0) sums[threadIdx.x / kLanes] = squares;
  __syncthreads();
  float sum = 0;
  for (const float of_warp : sums) sum += of_warp;
  return norm_scale(sum, columns, epsilon);
}

template <typename Element>
class TokenAppender {
 public:
  // row_scales: of a norm over rows, for q and k.
  __device__ TokenAppender(const AppendCall& call, uint32_t token, const float2* angles, float2 row_scales, float* head)
      : call_(call),
        token_(token),
        angles_(angles),
        row_scales_(row_scales),
        head_(head),
        lane_(threadIdx.x % kLanes) {}

  __device__ void query(uint32_t head) {
    float* row = call_.q + token_ * call_.q_stride + uint64_t{head} * call_.head_dim;
    load(row);
    if (call_.q_norm != nullptr) normalise(call_.q_norm, head, row_scales_.x);
    rotate();
    for (uint32_t c = lane_; c < call_.head_dim; c += kLanes) row[c] = head_[c];
  }
  __device__ void key(uint32_t head) {
    load(call_.k + token_ * call_.k_stride + uint64_t{head} * call_.head_dim);
    if (call_.k_norm != nullptr) normalise(call_.k_norm, head, row_scales_.y);
    rotate();
    append(call_.kv.k, call_.kv.k_scales, head);
  }
  __device__ void value(uint32_t head) {
    load(call_.v + token_ * call_.v_stride + uint64_t{head} * call_.head_dim);
    append(call_.kv.v, call_.kv.v_scales, head);
  }

 private:
  __device__ void load(const float* row) {
    __syncwarp();
    for (uint32_t c = lane_; c < call_.head_dim; c += kLanes) head_[c] = row[c];
    __syncwarp();
  }

  __device__ void normalise(const float* weight, uint32_t head, float row_scale) {
    float scale = row_scale;
    if (call_.is_row_norm) {
      weight += uint64_t{head} * call_.head_dim;
    } else {
      float squares = 0;
      for (uint32_t c = lane_; c < call_.head_dim; c += kLanes) squares += head_[c] * head_[c];
      scale = norm_scale(warp_sum(squares), call_.head_dim, call_.norm_epsilon);
    }
    for (uint32_t c = lane_; c < call_.head_dim; c += kLanes) head_[c] = head_[c] * scale * weight[c];
    __syncwarp();
  }

  __device__ void rotate() {
    const uint32_t half = call_.dims / 2;
    for (uint32_t i = lane_; i < half; i += kLanes) {
      const uint32_t a = call_.is_adjacent ? 2 * i : i, b = call_.is_adjacent ? 2 * i + 1 : i + half;
      const float x = head_[a], y = head_[b];
      head_[a] = x * angles_[i].x - y * angles_[i].y;
      head_[b] = y * angles_[i].x + x * angles_[i].y;
    }
    __syncwarp();
  }

  // As ops/kv_pool.h defines it.
  __device__ float f8_scale() const {
    float greatest = 0;
    bool is_finite = true;
    for (uint32_t c = lane_; c < call_.head_dim; c += kLanes) {
      is_finite = is_finite && isfinite(head_[c]);
      greatest = fmaxf(greatest, fabsf(head_[c]));
    }
    if (!__all_sync(~0u, is_finite)) return NAN;
    return fmaxf(__fdiv_rn(warp_largest(greatest), kGreatestF8), FLT_MIN);
  }

  __device__ void append(const void* half, const float* scales, uint32_t head) {
    const PageId page = call_.append_pages[token_];
    if (page == kNoPage) return;
    const uint32_t slot = call_.append_slots[token_];
    Element* to = static_cast<Element*>(const_cast<void*>(half)) + page * call_.kv.page_stride +
                  head * call_.kv.head_stride + slot * call_.kv.slot_stride;
    float inverse = 1;
    if (scales != nullptr) {
      const float scale = f8_scale();
      inverse = __fdiv_rn(1, scale);
      if (lane_ == 0) {
        const_cast<float*>(scales)[page * call_.kv.scale_page_stride + head * call_.kv.scale_head_stride + slot] =
            scale;
      }
    }
    for (uint32_t c = lane_; c < call_.head_dim; c += kLanes) to[c] = from_float<Element>(__fmul_rn(head_[c], inverse));
  }

  const AppendCall& call_;
  const uint64_t token_;
  const float2* angles_;
  const float2 row_scales_;
  float* head_;
  const uint32_t lane_;
};

template <typename Element>
__global__ void __launch_bounds__(kThreads) append(const __grid_constant__ AppendCall call) {
  __shared__ float2 angles[AppendCall::kHeadDimMax / 2];
  __shared__ float heads[kWarps][AppendCall::kHeadDimMax];
  const uint32_t warp = threadIdx.x / kLanes;
  let_next_begin();
  bool has_waited = false;
  for (uint32_t token = blockIdx.x; token < call.header->tokens; token += gridDim.x) {
    __syncthreads();  // the token before is done with the angles
    for (uint32_t i = threadIdx.x; i < call.dims / 2; i += kThreads) {
      // Reduced in double: at position 100,000 a float angle is off by 0.004.
      constexpr double kTurn = 6.283185307179586476925;
      const double angle = static_cast<double>(call.positions[token]) * call.inverse_frequencies[i];
      const float reduced = static_cast<float>(angle - kTurn * rint(angle / kTurn));
      float sine, cosine;
      sincosf(reduced, &sine, &cosine);
      angles[i] = {cosine * call.rope_scale, sine * call.rope_scale};
    }
    if (!has_waited) wait_for_kernels_ahead();
    has_waited = true;
    float2 row_scales{};
    if (call.is_row_norm) {
      row_scales.x = row_scale(call.q + token * call.q_stride, call.q_heads * call.head_dim, call.norm_epsilon);
      row_scales.y = row_scale(call.k + token * call.k_stride, call.kv_heads * call.head_dim, call.norm_epsilon);
    }
    __syncthreads();
    TokenAppender<Element> appender(call, token, angles, row_scales, heads[warp]);
    const uint32_t heads = call.q_heads + 2 * call.kv_heads;
    for (uint32_t head = blockIdx.y * kWarps + warp; head < heads; head += gridDim.y * kWarps) {
      if (head < call.q_heads) {
        appender.query(head);
      } else if (head < call.q_heads + call.kv_heads) {
        appender.key(head - call.q_heads);
      } else {
        appender.value(head - call.q_heads - call.kv_heads);
      }
    }
  }
  if (!has_waited) wait_for_kernels_ahead();
}

}  // namespace

cudaError_t launch_append(KvElement element, const AppendCall& call, uint32_t tokens, cudaStream_t stream) {
  // A norm over all heads reads what other warps rotate in place: one block keeps them in step.
  const uint32_t parts = call.is_row_norm ? 1 : (call.q_heads + 2 * call.kv_heads + kWarps - 1) / kWarps;
  const dim3 blocks(tokens, parts);
  switch (element) {
    case KvElement::kF32:
      return launch_overlapping(append<float>, blocks, kThreads, 0, stream, call);
    case KvElement::kF16:
      return launch_overlapping(append<__half>, blocks, kThreads, 0, stream, call);
    case KvElement::kBF16:
      return launch_overlapping(append<__nv_bfloat16>, blocks, kThreads, 0, stream, call);
    case KvElement::kF8:
      return launch_overlapping(append<__nv_fp8_e4m3>, blocks, kThreads, 0, stream, call);
  }
  return cudaErrorInvalidValue;
}

}  // namespace headwater::backend::cuda
