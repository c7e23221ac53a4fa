// Operations of one pass over rows: each moves its operands once, a thread a column, a block some columns of a row.
#include <algorithm>

#include "backend/cuda/overlap.cuh"
#include "backend/cuda/step/activated.cuh"
#include "backend/cuda/step/rows.cuh"
#include "ops/pending_token.h"

namespace headwater::backend::cuda {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kBlocksMax = 65535;  // of a grid's y

// Rows beyond the grid's are taken by the same blocks. Each kernel below visits column c of rows, and does nothing else.
dim3 grid_of(Extent extent) {
  return dim3((extent.columns + kThreads - 1) / kThreads, std::min(extent.rows, kBlocksMax));
}
template <typename Visit>
__device__ void for_each_row(Extent extent, const Visit& visit) {
  let_next_begin();
  wait_for_kernels_ahead();
  const uint32_t c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= extent.columns) return;
  for (uint32_t row = blockIdx.y; row < extent.rows; row += gridDim.y) visit(row, c);
}

__device__ __forceinline__ TokenId token_at(const TokenIds& tokens, uint32_t row) {
  const TokenId id = tokens.ids[row];
  return id < 0 && ops::pending_row(id) < tokens.sampled_max ? tokens.sampled[ops::pending_row(id)] : id;
}

template <typename Element>
__global__ void embed(Rows table, uint32_t vocabulary, TokenIds token_ids, float scale, Rows out, Extent extent) {
  for_each_row(extent, [&](uint32_t row, uint32_t c) {
    const auto id = static_cast<uint32_t>(token_at(token_ids, row));
    row_at<float>(out, row)[c] = scale * to_float(row_at<Element>(table, id < vocabulary ? id : 0)[c]);
  });
}

template <typename In, typename Out>
__global__ void gate_mul(GateMulCall call) {
  for_each_row(call.extent, [&](uint32_t row, uint32_t c) {
    Out& out = row_at<Out>(call.out, row)[c];
    if (c >= call.columns_in) {
      out = from_float<Out>(0.0f);
    } else {
      const float gate = to_float(row_at<In>(call.gate, row)[c]), up = to_float(row_at<In>(call.up, row)[c]);
      out = from_float<Out>(activated(call.activation, gate, up));
    }
  });
}

// BF16, eight columns a thread.
__global__ void gate_mul_wide(GateMulCall call) {
  for_each_row({call.extent.rows, call.extent.columns / 8}, [&](uint32_t row, uint32_t eighth) {
    const auto at = [&](const Rows& rows) {
      return reinterpret_cast<uint4*>(row_at<__nv_bfloat16>(rows, row)) + eighth;
    };
    uint4 gates = *at(call.gate), ups = *at(call.up);
    auto* gate = reinterpret_cast<__nv_bfloat162*>(&gates);
    const auto* up = reinterpret_cast<const __nv_bfloat162*>(&ups);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const float2 g = __bfloat1622float2(gate[i]), u = __bfloat1622float2(up[i]);
      gate[i] = __floats2bfloat162_rn(activated(call.activation, g.x, u.x), activated(call.activation, g.y, u.y));
    }
    *at(call.out) = gates;
  });
}

bool is_wide(const Rows& rows) {
  return rows.is_short && reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride % 8 == 0;
}

__global__ void cap_logits(Rows logits, Extent extent, float scale, float softcap) {
  for_each_row(extent, [&](uint32_t row, uint32_t c) {
    float& logit = row_at<float>(logits, row)[c];
    logit *= scale;
    if (softcap > 0) logit = softcap * tanhf(logit / softcap);
  });
}

__global__ void gather_rows(Rows in, uint32_t rows_in, const uint32_t* rows, Rows out, Extent extent) {
  for_each_row(extent, [&](uint32_t row, uint32_t c) {
    const uint32_t from = rows[row] < rows_in ? rows[row] : 0;
    row_at<float>(out, row)[c] = row_at<float>(in, from)[c];
  });
}

template <typename In, typename Out>
__global__ void convert(Rows from, uint32_t columns_from, Rows to, Extent extent) {
  for_each_row(extent, [&](uint32_t row, uint32_t c) {
    row_at<Out>(to, row)[c] = from_float<Out>(c < columns_from ? to_float(row_at<In>(from, row)[c]) : 0.0f);
  });
}

// What is on the host depends on no kernel ahead.
constexpr uint32_t kPieces = 4;  // of a thread, on their way together
__global__ void __launch_bounds__(kThreads) upload(uint4* to, const uint4* from, uint32_t count) {
  let_next_begin();
  uint4 pieces[kPieces];
  const uint32_t first = blockIdx.x * kPieces * kThreads + threadIdx.x;
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (first + i * kThreads < count) pieces[i] = __ldcv(from + first + i * kThreads);
  }
  wait_for_kernels_ahead();
#pragma unroll
  for (uint32_t i = 0; i < kPieces; ++i) {
    if (first + i * kThreads < count) to[first + i * kThreads] = pieces[i];
  }
}

template <typename Element>
__global__ void add_bias(Rows to, const float* bias, Extent extent) {
  for_each_row(extent, [&](uint32_t row, uint32_t c) {
    Element& value = row_at<Element>(to, row)[c];
    value = from_float<Element>(to_float(value) + bias[c]);
  });
}

template <typename Pointer>
using ElementOf = std::remove_pointer_t<Pointer>;

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), Extent extent, cudaStream_t stream, const Arguments&... arguments) {
  return launch_overlapping(kernel, grid_of(extent), kThreads, 0, stream, arguments...);
}

}  // namespace

cudaError_t launch_embed(const Rows& table, uint32_t vocabulary, const TokenIds& token_ids, float scale,
                         const Rows& out, Extent extent, cudaStream_t stream) {
  if (extent.rows == 0) return cudaSuccess;
  return with_element(table.is_short, [&](auto* element) {
    return launch(embed<ElementOf<decltype(element)>>, extent, stream, table, vocabulary, token_ids, scale, out,
                  extent);
  });
}

cudaError_t launch_gate_mul(const GateMulCall& call, cudaStream_t stream) {
  if (call.extent.rows == 0) return cudaSuccess;
  const Extent extent = call.extent;
  if (is_wide(call.gate) && is_wide(call.up) && is_wide(call.out) && extent.columns % 8 == 0 &&
      call.columns_in == extent.columns) {
    return launch(gate_mul_wide, {extent.rows, extent.columns / 8}, stream, call);
  }
  return with_element(call.gate.is_short, [&](auto* in) {
    return with_element(call.out.is_short, [&](auto* out) {
      return launch(gate_mul<ElementOf<decltype(in)>, ElementOf<decltype(out)>>, extent, stream, call);
    });
  });
}

cudaError_t launch_cap_logits(const Rows& logits, Extent extent, float scale, float softcap, cudaStream_t stream) {
  if (extent.rows == 0) return cudaSuccess;
  return launch(cap_logits, extent, stream, logits, extent, scale, softcap);
}

cudaError_t launch_gather_rows(const Rows& in, uint32_t rows_in, const uint32_t* rows, const Rows& out, Extent extent,
                               cudaStream_t stream) {
  if (extent.rows == 0) return cudaSuccess;
  return launch(gather_rows, extent, stream, in, rows_in, rows, out, extent);
}

cudaError_t launch_convert(const Rows& from, uint32_t columns_from, const Rows& to, Extent extent,
                           cudaStream_t stream) {
  if (extent.rows == 0) return cudaSuccess;
  return with_element(from.is_short, [&](auto* in) {
    return with_element(to.is_short, [&](auto* out) {
      return launch(convert<ElementOf<decltype(in)>, ElementOf<decltype(out)>>, extent, stream, from, columns_from, to,
                    extent);
    });
  });
}

cudaError_t launch_upload(void* to, const void* from, uint64_t bytes, cudaStream_t stream) {
  constexpr uint64_t kBytesMost = 8 << 20;  // beyond it a beginning some microseconds sooner counts for nothing
  if (bytes > kBytesMost) return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
  const auto count = static_cast<uint32_t>((bytes + kUploadPiece - 1) / kUploadPiece);
  if (count == 0) return cudaSuccess;
  constexpr uint32_t kBlock = kPieces * kThreads;
  return launch_overlapping(upload, (count + kBlock - 1) / kBlock, kThreads, 0, stream, static_cast<uint4*>(to),
                            static_cast<const uint4*>(from), count);
}

cudaError_t launch_add_bias(const Rows& to, const float* bias, Extent extent, cudaStream_t stream) {
  if (extent.rows == 0) return cudaSuccess;
  return with_element(to.is_short, [&](auto* element) {
    return launch(add_bias<ElementOf<decltype(element)>>, extent, stream, to, bias, extent);
  });
}

}  // namespace headwater::backend::cuda
