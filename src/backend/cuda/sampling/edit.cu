// Biases, bans and penalties, in place: only the logits of listed tokens change, and the maxima of their blocks. What they
// were is saved and put back when the row's token is known (take_back()).
#include "backend/cuda/sampling/row.cuh"

namespace headwater::backend::cuda::sampling {
namespace {

constexpr uint32_t kInPrompt = 0x80000000u;  // flag beside the count of occurrences in the output

struct Lists {
  __device__ explicit Lists(const Row& row)
      : params(row.params),
        biased(row.call.words + params.first_word),
        banned(biased + params.biases),
        prompt(banned + params.banned),
        generated(prompt + params.prompt),
        biases(reinterpret_cast<const float*>(generated + params.generated)),
        counts(row.call.counts + uint64_t{params.counts} * row.call.vocabulary) {}

  const RowCall& params;
  const uint32_t *biased, *banned, *prompt, *generated;
  const float* biases;
  uint32_t* counts;  // [vocabulary]
};

// One token's biases are added in their order: where there are several, one thread does.
__device__ void add_biases(const Row& row, const Lists& lists) {
  const uint32_t count = lists.params.biases;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) atomicAdd(&lists.counts[lists.biased[i]], 1u);
  __syncthreads();
  const auto is_alone = [&](uint32_t i) { return lists.counts[lists.biased[i]] == 1; };
  const auto add = [&](uint32_t i) {
    float& logit = row.logits[lists.biased[i]];
    logit = sum(logit, lists.biases[i]);
  };
  bool repeats = false;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    if (is_alone(i)) {
      add(i);
    } else {
      repeats = true;
    }
  }
  if (__syncthreads_or(repeats) && threadIdx.x == 0) {
    for (uint32_t i = 0; i < count; ++i) {
      if (!is_alone(i)) add(i);
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) lists.counts[lists.biased[i]] = 0;
}

// Each token once: its count is taken, and so all counts are zero again in the end.
__device__ void penalise(const Row& row, const Lists& lists) {
  const RowCall& params = lists.params;
  const Penalties penalties{params.repetition_penalty, params.frequency_penalty, params.presence_penalty};
  for (uint32_t i = threadIdx.x; i < params.prompt; i += kThreads) atomicOr(&lists.counts[lists.prompt[i]], kInPrompt);
  for (uint32_t i = threadIdx.x; i < params.generated; i += kThreads) atomicAdd(&lists.counts[lists.generated[i]], 1u);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < params.prompt + params.generated; i += kThreads) {
    const uint32_t token = lists.prompt[i];  // the output follows
    const uint32_t count = atomicExch(&lists.counts[token], 0u);
    if (count != 0) row.logits[token] = penalties.apply(row.logits[token], count & ~kInPrompt);
  }
}

// Of the listed tokens' blocks, or, where the lists are long, of all; then of all groups. A NaN, which an infinite bias
// can make, is no maximum.
__device__ void renew_maxima(const Row& row, const Lists& lists) {
  const uint32_t ids = row.params.ids(), blocks = row.call.blocks;
  for (uint32_t i = threadIdx.x / kBlockThreads; i < min(ids, blocks); i += kGroupBlocks) {
    const uint32_t block = ids < blocks ? lists.biased[i] / kBlockTokens : i;
    float values[kThreadTokens];
    row.load(block, values);
    float largest = -INFINITY;
#pragma unroll
    for (const float value : values) largest = value > largest ? value : largest;
    largest = block_largest(largest);
    if (threadIdx.x % kBlockThreads == 0) row.maxima()[block] = largest;
  }
  __syncthreads();
  for (uint32_t group = threadIdx.x / kBlockThreads; group < row.call.groups; group += kGroupBlocks) {
    const uint32_t end = min((group + 1) * kGroupBlocks, blocks);
    float largest = -INFINITY;
    for (uint32_t block = group * kGroupBlocks + threadIdx.x % kBlockThreads; block < end; block += kBlockThreads) {
      largest = fmaxf(largest, row.maxima()[block]);
    }
    largest = block_largest(largest);
    if (threadIdx.x % kBlockThreads == 0) row.group_maxima()[group] = largest;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 2) edit(const __grid_constant__ SampleCall call) {
  const Row row(call, blockIdx.x);
  if (!row.params.changes_logits || row.is_done()) return;
  const Lists lists(row);
  const uint32_t first = row.params.first_word;
  for (uint32_t i = threadIdx.x; i < row.params.ids(); i += kThreads) {
    call.saved[first + i] = row.logits[call.words[first + i]];
  }
  __syncthreads();
  add_biases(row, lists);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < row.params.banned; i += kThreads) row.logits[lists.banned[i]] = -INFINITY;
  __syncthreads();
  penalise(row, lists);
  __syncthreads();
  renew_maxima(row, lists);

  const Peak peak = find_peak(row);
  const bool can_choose = isfinite(peak.logit);
  if (!can_choose || !row.params.draws()) take_back(row);
  if (threadIdx.x != 0) return;
  row.peak() = peak.logit;
  if (!can_choose) {
    send(row, kNothingToChoose);
  } else if (!row.params.draws()) {
    choose(row, peak.token);
  }
}

}  // namespace

cudaError_t launch_edit(const SampleCall& call, cudaStream_t stream) {
  edit<<<call.rows, kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda::sampling
