/* Attention of one layer for programs that are not C++: plan from host arrays, run on device pointers, any stream.
 *
 * A handle belongs to one thread at a time and to the device that was current when it was created. It has one step and one
 * scratch: its plans and runs follow one another, on one stream or ordered by events. Runs of several handles on one device
 * must not overlap in time either, since the blocks of a run may wait for each other. Functions return 0, or -1 and say why in
 * headwater_attention_error(). */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct headwater_attention headwater_attention;

typedef struct {
  uint32_t q_heads, kv_heads, head_dim, page_size; /* page_size: tokens, a multiple of 16 */
  uint32_t dtype;                                  /* of q, k, v and out: 0 bfloat16, 1 float16 */
  uint32_t sequences_max, tokens_max, pages_per_sequence_max;
  uint32_t sharing;   /* 0 off, 1 auto, 2 always */
  uint32_t invariant; /* 1: the same bits whatever is shared and whoever is in the batch */
} headwater_attention_config;

/* One layer's pages: element (page, slot, kv head, column) of k lies at page * page_stride + slot * slot_stride +
 * kv_head * head_stride + column, v likewise. Strides in elements, multiples of 8; addresses multiples of 16 bytes. */
typedef struct {
  const void* k;
  const void* v;
  uint64_t pages, page_stride, slot_stride, head_stride;
} headwater_attention_kv;

typedef struct {
  uint32_t path; /* 0 flat, 1 shared, 2 mixed */
  uint32_t groups, members, shared_pages, items, splits;
  uint64_t bytes_read, bytes_flat, bytes_unique;
  double predicted_us;
  const char* reason; /* of a flat step */
} headwater_attention_outcome;

int headwater_attention_create(const headwater_attention_config* config, headwater_attention** out);
void headwater_attention_destroy(headwater_attention* attention);

/* Host arrays: page_indptr[sequences + 1], page_ids[], kv_len[sequences], q_indptr[sequences + 1], as src/attention/plan.h
 * describes them. Plans the step and uploads it on `stream` (a cudaStream_t); the runs that follow use it. The upload of
 * the plan before must have ended. outcome may be null. */
int headwater_attention_plan(headwater_attention* attention, uint32_t sequences, const uint32_t* page_indptr,
                             const uint32_t* page_ids, const uint32_t* kv_len, const uint32_t* q_indptr, void* stream,
                             headwater_attention_outcome* outcome);

/* The last q_len keys of a sequence, and q, may come from the kernel directly ahead in the stream; other keys are read before that
 * kernel has ended, if it lets the next one begin early. q, out: device, [tokens, q_heads, head_dim] contiguous. lse2: device, [tokens, q_heads] or null. scale: of the scores. May
 * be recorded into a graph; the recorded run then reads whatever plan was uploaded last. */
int headwater_attention_run(headwater_attention* attention, const headwater_attention_kv* kv, const void* q, void* out,
                            float* lse2, float scale, void* stream);

/* Enqueues a kernel that reads `bytes` of `memory` in pieces of piece_bytes (a power of two, 16 or more) at scattered places and does
 * nothing else: no attention over so many bytes is faster. */
int headwater_attention_read_floor(const void* memory, uint64_t memory_bytes, uint64_t bytes, uint32_t piece_bytes,
                                   void* stream);

/* Only in builds with HEADWATER_KERNEL_CLOCKS. What the blocks of the last run of the process stamped, if it has ended: host memory of
 * the layout in backend/cuda/attention/clocks.h, until the next call. Null: no run has stamped anything, or copying failed. */
const void* headwater_attention_clocks(uint32_t* blocks);

const char* headwater_attention_error(void); /* of this thread's last failure */

#ifdef __cplusplus
}
#endif
