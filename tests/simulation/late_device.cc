#include "simulation/late_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headwater::testing {
namespace {

class CopyInMemory final : public ops::DeviceCopy {
 public:
  explicit CopyInMemory(Buffer memory) : memory_(std::move(memory)) {}
  std::byte* data() const override { return memory_.data(); }

 private:
  Buffer memory_;
};

template <typename T>
void own(std::span<const T>& list, std::vector<T>& memory, bool is_read) {
  memory.assign(list.begin(), is_read ? list.end() : list.begin());
  list = memory;
}

}  // namespace

LateBackend::LateBackend(uint32_t vocabulary, uint32_t workers, Fault fault)
    : ScriptedBackend(vocabulary, workers, fault) {
  info_.runs_ahead = true;
}

Status LateBackend::reserve_scratch(const ops::StepLimits& limits, const ops::KvShape& kv, uint32_t q_heads,
                                    uint32_t vocabulary) {
  HEADWATER_RETURN_IF_ERROR(check_collected());
  for (Step& step : steps_) {
    step.rows.resize(limits.logits_max);
    step.sampled.reserve(limits.logits_max);
    step.from.reserve(limits.sequences_max);
    step.to.reserve(limits.sequences_max);
  }
  tokens_.reserve(limits.logits_max);
  return ScriptedBackend::reserve_scratch(limits, kv, q_heads, vocabulary);
}

Result<ops::StepBlock> LateBackend::create_step_block(const ops::StepLimits& limits) {
  const uint64_t bytes = ops::StepBlock::bytes_max(limits);
  HEADWATER_ASSIGN_OR_RETURN(Buffer host, Buffer::create(bytes));
  HEADWATER_ASSIGN_OR_RETURN(Buffer device, Buffer::create(bytes));
  return ops::StepBlock::create(limits, std::move(host), std::make_shared<CopyInMemory>(std::move(device)));
}

Result<ops::StepBlock> LateBackend::create_twin(const ops::StepBlock& block) {
  HEADWATER_ASSIGN_OR_RETURN(Buffer host, Buffer::create(ops::StepBlock::bytes_max(block.limits())));
  return ops::StepBlock::create(block.limits(), std::move(host), block.device_copy());
}

Status LateBackend::check_collected() const {
  return begun_ == done_ ? Status() : error(ErrorCode::kInvalidArgument, "steps of another engine are not collected");
}

Result<ops::DeviceBatch> LateBackend::begin_step(const ops::StepBlock& block) {
  if (begun_ > 0 && block.device_copy()->data() != newest().device) HEADWATER_RETURN_IF_ERROR(check_collected());
  check(begun_ - done_ < 2, "a step is begun while two are on the device");
  steps_ahead_ += begun_ - done_;
  ++begun_;
  Step& step = newest();
  step.block = block.bytes();
  step.device = block.device_copy()->data();
  step.from.clear();
  step.to.clear();
  step.sampled.clear();
  step.decoder = nullptr;
  return block.batch_at(step.device);
}

void LateBackend::copy_pages(ops::KvPool&, std::span<const PageId> from, std::span<const PageId> to) {
  newest().from.assign(from.begin(), from.end());
  newest().to.assign(to.begin(), to.end());
}

void LateBackend::forward(LateDecoder& decoder, const ops::DeviceBatch& batch, ops::KvPool& pool) {
  newest().batch = batch;
  newest().pool = &pool;
  newest().decoder = &decoder;
}

void LateBackend::sample(const ops::SampleParams& params) {
  Step& step = newest();
  for (size_t i = 0; i < params.rows.size(); ++i) {
    Row& kept = step.rows[i];
    kept.row = params.rows[i];
    const bool counts = ops::counts_tokens(kept.row);
    own(kept.row.bias, kept.bias, true);
    own(kept.row.banned, kept.banned, true);
    own(kept.row.prompt, kept.prompt, counts);
    own(kept.row.generated, kept.generated, counts);
    step.sampled.push_back(kept.row);
  }
}

// In the copy, as embed() would: a row that failed stands for any token of the table.
void LateBackend::look_up_pending(const ops::DeviceBatch& batch) const {
  for (const TokenId& token : batch.token_ids) {
    if (token >= 0) continue;
    check(ops::pending_row(token) < tokens_.size(), "a pending token of a row that was not sampled");
    const_cast<TokenId&>(token) = std::max(tokens_[ops::pending_row(token)], 0);
  }
}

Status LateBackend::run_oldest() {
  Step& step = steps_[done_++ % 2];
  if (step.decoder == nullptr) return {};
  std::memcpy(step.device, step.block.data(), step.block.size());
  look_up_pending(step.batch);
  ScriptedBackend::copy_pages(*step.pool, step.from, step.to);
  tokens_.assign(step.sampled.size(), -1);
  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix logits, step.decoder->compute(step.batch, *step.pool));
  ScriptedBackend::sample({logits, step.sampled});
  HEADWATER_ASSIGN_OR_RETURN(const std::span<const ops::Sampled> sampled, ScriptedBackend::collect());
  std::ranges::transform(sampled, tokens_.begin(), &ops::Sampled::token);
  return {};
}

Result<std::span<const ops::Sampled>> LateBackend::collect() {
  check(done_ < begun_, "collect() without a step");
  HEADWATER_RETURN_IF_ERROR(run_oldest());
  return ScriptedBackend::collect();
}

Status LateBackend::finish() {
  Status first;
  while (done_ < begun_) {
    Status status = run_oldest();
    if (first) first = std::move(status);
  }
  return first;
}

Result<ops::Matrix> LateDecoder::forward(const ops::DeviceBatch& batch, ops::KvPool& pool) {
  if (std::exchange(fails_launch_, false)) return error(ErrorCode::kInternal, "the launch failed (injected)");
  late_.forward(*this, batch, pool);
  return ops::Matrix{nullptr, static_cast<uint32_t>(batch.logits_tokens.size()), shape().vocabulary};
}

}  // namespace headwater::testing
