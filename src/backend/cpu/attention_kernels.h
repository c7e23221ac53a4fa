// What the host side of attention hands to the kernels of a target: plain data and one table of functions.
// (Kernel files may include nothing that has inline functions; see targets.h.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ids.h"

namespace headwater::backend::cpu {

inline constexpr uint32_t kHeadDimMax = 256;      // of keys and of values
inline constexpr uint32_t kCutMax = 1024;         // keys of a cut
inline constexpr uint32_t kTokensBlock = 64;      // query tokens that a worker keeps converted at a time
inline constexpr uint32_t kRowsTileMax = 16;      // rows of a tile, over all targets
inline constexpr uint32_t kColumnsTogether = 16;  // keys, or columns of values, that lie side by side in a page
inline constexpr uint32_t kTilesTogether = 3;     // tiles whose scores a worker holds at once
inline constexpr uint32_t kFactorBytesMax = 4;
inline constexpr uint32_t kWideKeys = 64;     // of kF8 pages widened together: they stay in the first-level cache
inline constexpr uint32_t kWideColumns = 64;  // and of their values, of a whole cut

enum class KvElement : uint8_t { kF32, kF16, kBF16, kF8 };

// One layer's pages and their layout (kv_pages.h).
struct LayerPages {
  std::byte* data;      // page 0
  uint64_t page_bytes;  // all KV heads
  uint64_t head_bytes;  // keys, then values, then the scales of kF8
  uint32_t page_size;
  uint32_t key_width;
  uint32_t value_width;
  KvElement element;
};

// One attend() or merge(): one layer, all items.
struct AttendCall {
  LayerPages pages;
  const float* q;  // [token][q_heads * key_width] in batch order
  uint64_t q_stride;
  float* out;  // [token][q_heads * value_width] in batch order
  uint64_t out_stride;
  float* lse2;  // [token][q_heads] in batch order, or null
  uint32_t q_heads;
  uint32_t group;      // query heads a KV head
  float score_scale;   // scale * log2(e): scores are base-2 exponents
  float softcap;       // the same units; 0: none
  const float* sinks;  // [q_heads] natural units, or null

  const uint32_t* page_ids;
  const uint32_t* token_order;     // plan position -> batch token
  const uint32_t* token_position;  // plan position -> absolute position
  const uint32_t* merge_indptr;
  const uint32_t* merge_slots;
  const uint8_t* token_empty;
  uint32_t cut;
  uint32_t window;

  float* partial_values;  // [slot][q_heads][value_width]
  float* partial_lse2;    // [slot][q_heads]
};

// attention::WorkItem; `fold` and `direct` are its flags.
struct AttendItem {
  uint32_t token_begin;
  uint32_t token_count;
  uint32_t page_begin;
  uint32_t key_begin;
  uint32_t key_count;
  uint32_t partial_begin;
  bool fold;
  bool direct;
};

// One worker's memory. Rows are counted inside a block of kTokensBlock tokens.
struct AttendScratch {
  void* q;           // [rows + kRowsTileMax][key_width] factors of the dot, scaled
  float* fold_lse2;  // [rows + kRowsTileMax]
  float* scores;     // [kTilesTogether][kRowsTileMax][cut + kRowsTileMax]
  void* weights;     // [kTilesTogether][kRowsTileMax][cut] exp2(score - max), as factors
  float* sums;       // [kTilesTogether][kRowsTileMax][value_width] weights times values
  void* tail;        // values of an item's last page when it is used in part
  uint16_t* wide;    // [kCutMax][most of key_width and kWideColumns] part of a cut of kF8 pages, as bf16
  float* scales;     // [2][kCutMax] of a cut's keys and of its values
  uint64_t kv_bytes_read;
};

// Normalises and rotates one token's q in place, and its k into its page slot together with v.
struct RopeAppendCall {
  LayerPages pages;
  float* q;
  const float* k;
  const float* v;
  uint64_t q_stride;
  uint64_t k_stride;
  uint64_t v_stride;
  uint32_t q_heads;
  uint32_t kv_heads;
  const float* angles;  // [token][2][dims]: of every element the cosine, and the sine with its sign (rope-inl.h)
  uint32_t dims;
  bool adjacent;        // pairs (2i, 2i + 1); otherwise (i, i + dims / 2)
  const float* q_norm;  // [key_width], [q_heads * key_width] of row norms, or null
  const float* k_norm;
  bool row_norms;  // the mean is over all heads
  float norm_epsilon;
  const uint32_t* append_pages;
  const uint32_t* append_slots;
};

struct AttentionKernels {
  uint32_t rows_bf16;   // rows of one pass over bf16 keys, and over e4m3 ones
  uint32_t rows_other;  // over f16 and f32 keys
  void (*attend)(const AttendCall& call, const AttendItem& item, uint32_t kv_head, AttendScratch& scratch);
  void (*merge)(const AttendCall& call, uint32_t token);  // token: plan position
  void (*rope_append)(const RopeAppendCall& call, uint32_t token);
};

extern const AttentionKernels kAttentionScalar;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;
extern const AttentionKernels kAttentionAvx512Bf16;
extern const AttentionKernels kAttentionAvx512Amx;

enum class Target : uint8_t;
const AttentionKernels& attention_kernels(Target target);

}  // namespace headwater::backend::cpu
