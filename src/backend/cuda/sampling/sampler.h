// Tokens chosen on the device, to the bit as ops::sample_row() chooses them on the host (docs/kernels/sampling-cuda.md).
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/cuda/sampling/call.h"
#include "ops/backend.h"

namespace headwater::backend::cuda {

class Sampler {
 public:
  // Room for rows_max rows of up to `vocabulary` logits. Allocates; before the first sample() and when either grows, never
  // while a step is on its way.
  Status reserve(uint32_t rows_max, uint32_t vocabulary);

  // Enqueues. `rows` and what they point to are read before it returns. Waits for the sample() before, which is lost if
  // nobody collected it. Allocates only where biases, bans and penalties list more tokens than ever before.
  // The logits are as they were when it is done.
  Status sample(const ops::Matrix& logits, std::span<const ops::SampleRow> rows, cudaStream_t stream);

  // Device memory, [rows]: the tokens of the last sample(), for a step that is enqueued before they are known here. Negative
  // where none could be chosen (call.h).
  const TokenId* tokens() const { return call_.tokens; }

  // Waits for the last sample(), not for what was enqueued behind it.
  Result<std::span<const ops::Sampled>> collect();

 private:
  Status allocate();
  Status reserve_lists(uint64_t words, uint64_t counts);
  Status pack(std::span<const ops::SampleRow> rows);
  Status launch(cudaStream_t stream) const;
  Status download(cudaStream_t stream) const;

  uint32_t rows_max_ = 0, vocabulary_max_ = 0;
  sampling::SampleCall call_{};
  std::vector<DeviceBuffer> memory_;  // what call_ points to, but for the two below
  DeviceBuffer saved_, counts_;
  std::vector<sampling::RowCall> row_calls_;  // [rows_max]
  Buffer packed_;                             // pinned: RowCall [rows], words
  DeviceBuffer packed_on_device_;
  uint64_t packed_bytes_ = 0;  // of the last sample()
  Buffer tokens_, logprobs_;   // pinned: TokenId [rows_max], LogprobParts [rows_max]
  Event done_;
  std::vector<ops::Sampled> sampled_;  // [rows_max]
  bool any_draws_ = false, any_changes_ = false, any_logprobs_ = false;
};

}  // namespace headwater::backend::cuda
