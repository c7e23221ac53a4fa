// The scripted model on a device that is as late as it may be: what a step enqueues runs when the step is collected,
// and not before that is even its block uploaded. So a host that writes a block too early, gives a page away too
// early or counts on a token that it cannot know makes another text than expected_tokens().
#pragma once

#include <array>

#include "simulation/scripted_model.h"

namespace headwater::testing {

class LateDecoder;

class LateBackend final : public ScriptedBackend {
 public:
  explicit LateBackend(uint32_t vocabulary, uint32_t workers = 4, Fault fault = Fault::kNone);

  uint64_t steps_begun_ahead() const { return steps_ahead_; }
  uint64_t steps_waiting() const { return begun_ - done_; }

  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& kv, uint32_t q_heads,
                         uint32_t vocabulary) override;
  Result<ops::StepBlock> create_step_block(const ops::StepLimits& limits) override;
  Result<ops::StepBlock> create_twin(const ops::StepBlock& block) override;
  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override;
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override;
  void forward(LateDecoder& decoder, const ops::DeviceBatch& batch, ops::KvPool& pool);
  void sample(const ops::SampleParams& params) override;
  Result<std::span<const ops::Sampled>> collect() override;
  Status finish() override;

 private:
  struct Row {  // with lists of its own: the caller's are read before sample() returns
    ops::SampleRow row;
    std::vector<ops::LogitBias> bias;
    std::vector<TokenId> banned, prompt, generated;
  };
  struct Step {
    std::span<const std::byte> block;  // the host's
    std::byte* device = nullptr;       // its copy
    ops::DeviceBatch batch;            // in the copy
    std::vector<PageId> from, to;
    ops::KvPool* pool = nullptr;
    LateDecoder* decoder = nullptr;  // null: not enqueued
    std::vector<Row> rows;           // [logits_max]
    std::vector<ops::SampleRow> sampled;
  };
  Status check_collected() const;  // or it is a step of another engine that stands on the device
  Step& newest() { return steps_[(begun_ - 1) % 2]; }
  Status run_oldest();
  void look_up_pending(const ops::DeviceBatch& batch) const;

  std::array<Step, 2> steps_;
  uint64_t begun_ = 0, done_ = 0, steps_ahead_ = 0;
  std::vector<TokenId> tokens_;  // of the last sample(), negative where none could be chosen
};

class LateDecoder final : public ScriptedDecoder {
 public:
  LateDecoder(LateBackend& backend, uint32_t vocabulary, uint32_t context_max, std::vector<uint32_t> windows = {0})
      : ScriptedDecoder(backend, vocabulary, context_max, std::move(windows)), late_(backend) {}

  Result<ops::Matrix> forward(const ops::DeviceBatch& batch, ops::KvPool& pool) override;
  Result<ops::Matrix> compute(const ops::DeviceBatch& batch, ops::KvPool& pool) {
    return ScriptedDecoder::forward(batch, pool);
  }
  void fail_next_launch() { fails_launch_ = true; }  // the next forward() returns an error at once

 private:
  LateBackend& late_;
  bool fails_launch_ = false;
};

}  // namespace headwater::testing
