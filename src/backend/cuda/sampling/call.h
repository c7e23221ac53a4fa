// What the sampling kernels are given. Logits are divided as ops/logit_blocks.h divides them, in blocks of 64; 64 blocks
// are a group, the work of one block of threads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/ids.h"

namespace headwater::backend::cuda::sampling {

inline constexpr uint32_t kBlockTokens = 64, kGroupBlocks = 64;
inline constexpr uint32_t kTopMax = 20;

// In the place of a token.
inline constexpr TokenId kNothingToChoose = -1;  // every token is banned or -inf
inline constexpr TokenId kBrokenLogits = -2;     // a NaN or +inf

// A row's parameters, uploaded.
struct RowCall {
  float temperature;  // 0: greedy
  float min_p_floor;  // of relative logits; ignored unless has_min_p
  float top_p;        // >= 1: all
  uint32_t top_k;     // 0: all; else below the vocabulary
  float repetition_penalty, frequency_penalty, presence_penalty;
  uint32_t top_logprobs;  // at most kTopMax and the vocabulary
  uint64_t draw;          // random bits
  // Of SampleCall::words: the ids of biases, banned tokens, prompt and output from `first_word` on, then the biases.
  uint32_t first_word, biases, banned, prompt, generated;
  uint32_t counts;  // which of SampleCall::counts is the row's
  bool has_min_p, wants_logprobs, changes_logits;

  __host__ __device__ uint32_t ids() const { return biases + banned + prompt + generated; }
  __host__ __device__ bool draws() const { return temperature != 0; }
  __host__ __device__ bool filters() const { return has_min_p || top_k > 0 || top_p < 1; }
  __host__ __device__ bool needs_all_weights() const { return !has_min_p && top_k == 0; }
};

// What logprobs are computed of; downloaded.
struct LogprobParts {
  uint64_t total;  // weight of all tokens at temperature 1
  float peak;      // largest logit, as the model gave it
  float chosen;    // the chosen token's, likewise
  struct Top {
    TokenId token;
    float logit;
  } top[kTopMax];  // likeliest first
};

// Device memory. [rows] and [ids] as large as this step's, [blocks] and [groups] of the vocabulary.
struct SampleCall {
  float* logits;    // [rows, vocabulary]; biases and penalties change them in place, and are taken back
  uint64_t stride;  // of rows, elements
  bool has_fours;   // rows are aligned to four logits, and end with the last of four
  uint32_t vocabulary, blocks, groups, rows;
  const RowCall* row_calls;  // [rows]
  const uint32_t* words;     // ids and biases of all rows
  float* saved;              // [words] logits as the model gave them

  float* peaks;          // [rows] largest logit, at last after biases and penalties; not finite: the row is done
  float* maxima;         // [rows, blocks] largest logit of each
  float* group_maxima;   // [rows, groups]
  uint64_t* sums;        // [rows, blocks] of weights
  uint64_t* group_sums;  // [rows, groups]
  uint32_t* live;        // [rows, blocks] those that a filter leaves
  uint32_t* arrived;     // [rows] groups that are done, zero between launches
  uint32_t* counts;      // [rows with penalties, vocabulary] occurrences, zero between launches

  TokenId* tokens;         // [rows]
  TokenId* tokens_sent;    // [rows] the same in the host's memory
  LogprobParts* logprobs;  // [rows]
};

// One launch each, for all rows; those that a kernel does not concern leave it at once.
cudaError_t launch_scan(const SampleCall& call, cudaStream_t stream);      // peaks, maxima; chooses greedily
cudaError_t launch_logprobs(const SampleCall& call, cudaStream_t stream);  // of the logits as the model gave them
cudaError_t launch_edit(const SampleCall& call, cudaStream_t stream);      // biases, bans, penalties; chooses greedily
cudaError_t launch_draw(const SampleCall& call, cudaStream_t stream);      // takes them back

}  // namespace headwater::backend::cuda::sampling
