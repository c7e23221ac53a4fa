// One attend of one layer as the kernels see it: everything but what changes from step to step, which they read from the
// uploaded step block. So a recorded launch serves every plan.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "attention/work_item.h"
#include "backend/cuda/attention/policy.h"
#include "core/ids.h"
#include "ops/step_header.h"

namespace headwater::backend::cuda {

// Keys and values of a layer. Strides in elements; the strides of scales in scales.
struct KvView {
  const void* k = nullptr;
  const void* v = nullptr;
  uint64_t page_stride = 0;
  uint64_t head_stride = 0;
  uint64_t slot_stride = 0;
  const float* k_scales = nullptr;  // F8_E4M3: one a token and KV head
  const float* v_scales = nullptr;
  uint64_t scale_page_stride = 0;
  uint64_t scale_head_stride = 0;
};

struct AttendCall {
  CUtensorMap k_map;  // Hopper: [layer][page][kv head][slot][column], swizzled panels of 64 columns
  CUtensorMap v_map;
  KvView kv;  // generic path

  // The step block on the device.
  const ops::StepHeader* header;
  const attention::WorkItem* items;
  uint32_t items_max;         // room for them
  const PageId* first_pages;  // [items][ops::kFirstPages]
  const uint32_t* token_order;
  const uint32_t* token_position;
  const uint32_t* merge_indptr;
  const uint32_t* merge_slots;
  const uint8_t* token_empty;
  const PageId* page_ids;

  const void* q;      // [tokens, q_heads, head_dim]
  void* out;          // likewise
  uint64_t q_stride;  // elements from token to token
  uint64_t out_stride;
  float* lse2;         // [tokens, q_heads] or null
  const float* sinks;  // [q_heads] or null

  float* partials;    // [partials, q_heads, partial_floats(head_dim)] (partial_row in rows.cuh)
  uint32_t* arrived;  // [tokens, q_heads] slots written so far; 0 between launches (generic path: [tokens, kv_heads])
  uint32_t* queue;    // [2] jobs handed out beyond the first of each stream, streams done; 0 between launches
  unsigned long long* kv_bytes_read;  // debug builds; else null

  uint32_t q_heads;
  uint32_t kv_heads;
  uint32_t group;
  uint32_t group_inverse;  // inverse_of(group)
  uint32_t tokens_slab;    // Hopper: query tokens whose rows fit a slab
  uint32_t head_dim;
  uint32_t page_size;
  uint32_t chunk_log2;  // Hopper: keys a copy; divides the page size
  Division q_heads_division;
  Division kv_heads_division;
  Division chunks_page;  // chunks of a page
  uint32_t layer;
  uint32_t cut;
  uint32_t window;
  float score_scale;  // scale * log2(e); with a soft-cap: scale / softcap
  float softcap;      // softcap * log2(e), or 0
  bool q_is_wide;     // float, else the KV element type
  bool out_is_wide;   // float, else OutputOf the KV element type

#ifdef __CUDACC__
  // row / group, exact for rows of a slab (below 64) and groups up to 64.
  __device__ uint32_t token_of_row(uint32_t row) const {
    return row * group_inverse >> 16;
  }
#endif
};

}  // namespace headwater::backend::cuda
