// Rotates queries and keys and writes keys and values into their page slots: one launch a layer.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/attention/call.h"
#include "backend/cuda/attention/launch.h"

namespace headwater::backend::cuda {

struct AppendCall {
  static constexpr uint32_t kHeadDimMax = 256;

  float* q;        // [tokens, q_heads * head_dim], rotated in place
  const float* k;  // [tokens, kv_heads * head_dim]
  const float* v;
  uint64_t q_stride, k_stride, v_stride;  // elements
  const uint32_t* positions;              // [tokens]; like header not written by a kernel that may still run
  const PageId* append_pages;             // [tokens]; kNoPage: not written
  const uint32_t* append_slots;
  const ops::StepHeader* header;  // tokens of the step
  const float* q_norm;            // [head_dim], is_row_norm: [q_heads * head_dim]; or null
  const float* k_norm;
  float norm_epsilon;
  bool is_row_norm;  // the mean is taken over all heads of a token
  float rope_scale;  // of cosine and sine
  KvView kv;         // of the layer; written
  uint32_t q_heads, kv_heads, head_dim;
  uint32_t dims;     // rotated, even
  bool is_adjacent;  // pairs (2 i, 2 i + 1); else (i, i + dims / 2)
  float inverse_frequencies[kHeadDimMax / 2];
};

// tokens: as many as a step is expected to have; a recorded launch takes as many as the step block says.
cudaError_t launch_append(KvElement element, const AppendCall& call, uint32_t tokens, cudaStream_t stream);

}  // namespace headwater::backend::cuda
