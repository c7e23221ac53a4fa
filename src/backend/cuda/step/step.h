// The small operations of a step beside products and attention. Each is one launch; what they do stands in ops/backend.h.
// Without rows they launch nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/ids.h"
#include "ops/activation.h"

namespace headwater::backend::cuda {

// Rows of activations on the device: f32, or BF16 where is_short.
struct Rows {
  void* data;
  uint64_t stride;  // elements
  bool is_short;
};

struct Extent {
  uint32_t rows, columns;
};

struct TokenIds {
  const TokenId* ids;      // [rows]; a pending_token() is what that row of `sampled` holds
  const TokenId* sampled;  // [sampled_max] of the sample() before; negative: the row failed
  uint32_t sampled_max;
};
// table: [vocabulary]. Ids outside of it, which only failed rows and those behind the step's last token hold, read
// row 0.
cudaError_t launch_embed(const Rows& table, uint32_t vocabulary, const TokenIds& token_ids, float scale,
                         const Rows& out, Extent extent, cudaStream_t stream);

struct AddNormCall {
  Rows residual, delta;  // f32; delta.data may be null
  Rows out;
  const float* weight;        // [columns] or null
  const float* delta_weight;  // likewise
  Extent extent;
  float epsilon, delta_scale;
};
inline constexpr uint32_t kNormColumnsMax = 32768;
cudaError_t launch_add_norm(const AddNormCall& call, cudaStream_t stream);  // up to kNormColumnsMax columns

struct GateMulCall {
  Rows gate, up;  // of one type
  Rows out;       // its columns from columns_in on become zero
  Extent extent;
  uint32_t columns_in;
  ops::Activation activation;
};
cudaError_t launch_gate_mul(const GateMulCall& call, cudaStream_t stream);

cudaError_t launch_cap_logits(const Rows& logits, Extent extent, float scale, float softcap, cudaStream_t stream);

// f32. Indices of rows_in or more, which only places behind the step's last one hold, read row 0.
cudaError_t launch_gather_rows(const Rows& in, uint32_t rows_in, const uint32_t* rows, const Rows& out, Extent extent,
                               cudaStream_t stream);

// to = from, columns from columns_from on zero.
cudaError_t launch_convert(const Rows& from, uint32_t columns_from, const Rows& to, Extent extent, cudaStream_t stream);

// Copies from pinned host memory. By threads: a copy engine begins later behind kernels, and they behind it. In pieces: up to
// kUploadPiece - 1 bytes more than told, from and to aligned addresses. Kernels behind it may begin before it has ended, so they read
// what it copies behind their wait.
inline constexpr uint32_t kUploadPiece = 16;
cudaError_t launch_upload(void* to, const void* from, uint64_t bytes, cudaStream_t stream);

cudaError_t launch_add_bias(const Rows& to, const float* bias, Extent extent, cudaStream_t stream);

}  // namespace headwater::backend::cuda
