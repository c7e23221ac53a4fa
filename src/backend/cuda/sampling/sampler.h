// Tokens chosen on the device, to the bit as ops::sample_row() chooses them on the host (docs/kernels/sampling-cuda.md).
#pragma once

#include <array>
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

  // Enqueues. `rows` and what they point to are read before it returns. At most two calls are collected later.
  // Allocates, and waits for the stream, only where biases, bans and penalties list more tokens than ever before. The
  // logits are as they were when it is done.
  Status sample(const ops::Matrix& logits, std::span<const ops::SampleRow> rows, cudaStream_t stream);

  // Device memory, [rows_max()], at one place until reserve(): the tokens of the last sample(), for a step that is
  // enqueued before they are known here. Negative where none could be chosen (call.h).
  const TokenId* tokens() const { return call_.tokens; }
  uint32_t rows_max() const { return rows_max_; }

  // Waits for the oldest sample() that was not collected, not for what was enqueued behind it. The rows are valid
  // until the next collect().
  Result<std::span<const ops::Sampled>> collect();
  uint64_t waiting() const { return calls_ - calls_collected_; }  // calls that were not collected
  void forget() { calls_collected_ = calls_; }  // what was not collected; when the device is done with it

 private:
  // What the host keeps of a sample() until it is collected.
  struct Staging {
    std::vector<sampling::RowCall> row_calls;  // [rows_max]
    Buffer packed;                             // pinned: RowCall [rows], words
    uint64_t packed_bytes = 0;
    Buffer tokens, logprobs;  // pinned: TokenId [rows_max], LogprobParts [rows_max]
    Event done;
    uint32_t rows = 0;
    bool any_draws = false, any_changes = false, any_logprobs = false;
  };

  Status allocate();
  Status enqueue(Staging& staging, const ops::Matrix& logits, std::span<const ops::SampleRow> rows,
                 cudaStream_t stream);
  Status reserve_lists(Staging& staging, uint64_t words, uint64_t counts, cudaStream_t stream);
  Status pack(Staging& staging, std::span<const ops::SampleRow> rows, cudaStream_t stream);
  Status launch(const Staging& staging, cudaStream_t stream) const;
  Status download(const Staging& staging, cudaStream_t stream) const;

  uint32_t rows_max_ = 0, vocabulary_max_ = 0;
  sampling::SampleCall call_{};
  std::vector<DeviceBuffer> memory_;  // what call_ points to, but for the two below
  DeviceBuffer saved_, counts_, packed_on_device_;
  std::array<Staging, 2> staging_;            // in turn
  uint64_t calls_ = 0, calls_collected_ = 0;  // call i is staging_[i % 2]
  std::vector<ops::Sampled> sampled_;         // [rows_max]
};

}  // namespace headwater::backend::cuda
