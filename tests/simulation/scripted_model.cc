#include "simulation/scripted_model.h"

#include <algorithm>

namespace headwater::testing {
namespace {

constexpr uint64_t kPoison = 0xdeadbeefcafef00d;

uint64_t scramble(uint64_t x) {  // the finaliser of MurmurHash3
  x = (x ^ x >> 33) * 0xff51afd7ed558ccd;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

// The first key that a position sees.
uint32_t first_key(uint32_t position, uint32_t window) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

// What a plan adds to what a token sees through all of them. The first one's sum stays as it is.
uint64_t seen_through(uint32_t plan, uint64_t sum) {
  return plan == 0 ? sum : scramble(sum + plan);
}

[[noreturn]] void not_scripted() {
  check(false, "the scripted back end has no operations of a decoder");
  std::abort();
}

}  // namespace

uint64_t key_record(uint32_t position, TokenId token) {
  return scramble(scramble(position + 1) + static_cast<uint64_t>(token));
}

void logits_of(uint64_t keys_seen, std::span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(scramble(keys_seen ^ scramble(i + 1)) >> 40) * 0x1p-22f;
  }
}

std::vector<TokenId> expected_tokens(const engine::Request& request, uint32_t choice, uint32_t vocabulary,
                                     const std::vector<uint32_t>& windows) {
  const engine::SamplingParams& asked = request.sampling;
  ops::SampleScratch scratch = ops::SampleScratch::create(vocabulary).value();
  std::vector<float> logits(vocabulary);
  std::vector<TokenId> generated;
  std::vector<uint64_t> sums{0};  // of the records before each position
  const auto add_key = [&](TokenId token) {
    sums.push_back(sums.back() + key_record(static_cast<uint32_t>(sums.size()) - 1, token));
  };
  for (const TokenId token : request.prompt) add_key(token);
  while (generated.size() < asked.tokens_max) {
    const auto position = static_cast<uint32_t>(sums.size()) - 2;  // of the last token
    uint64_t keys_seen = 0;
    for (uint32_t i = 0; i < windows.size(); ++i) {
      keys_seen += seen_through(i, sums.back() - sums[first_key(position, windows[i])]);
    }
    logits_of(keys_seen, logits);
    const bool may_stop = generated.size() >= asked.tokens_min;
    ops::SampleRow row{
        .temperature = asked.temperature, .top_k = asked.top_k, .top_p = asked.top_p, .min_p = asked.min_p};
    row.repetition_penalty = asked.repetition_penalty;
    row.frequency_penalty = asked.frequency_penalty;
    row.presence_penalty = asked.presence_penalty;
    row.seed = asked.seed;
    row.choice = choice;
    row.position = static_cast<uint32_t>(generated.size());
    row.bias = asked.logit_bias;
    row.prompt = request.prompt;
    row.generated = generated;
    if (!may_stop && !asked.ignore_stop_ids) row.banned = asked.stop_ids;
    const TokenId token = ops::sample_row(logits, row, scratch).value().token;
    generated.push_back(token);
    add_key(token);
    if (!asked.ignore_stop_ids && std::ranges::count(asked.stop_ids, token) > 0) break;
  }
  return generated;
}

ScriptedPool::ScriptedPool(const ops::KvShape& shape)
    : KvPool(shape), records_(size_t{shape.pages} * shape.page_size, kPoison) {}

std::span<uint64_t> ScriptedPool::page(PageId page) {
  check(page < shape().pages, "a page id outside the pool");
  return std::span(records_).subspan(size_t{page} * shape().page_size, shape().page_size);
}

ScriptedBackend::ScriptedBackend(uint32_t vocabulary, uint32_t workers, Fault fault)
    : info_{.name = "scripted", .target = "host", .workers = workers, .page_size_multiple = 1, .invariant = true},
      fault_(fault),
      scratch_(ops::SampleScratch::create(vocabulary).value()) {}

Result<std::unique_ptr<ops::KvPool>> ScriptedBackend::create_kv_pool(const ops::KvShape& shape) {
  return std::unique_ptr<ops::KvPool>(std::make_unique<ScriptedPool>(shape));
}

Status ScriptedBackend::reserve_scratch(const ops::StepLimits& limits, const ops::KvShape&, uint32_t, uint32_t) {
  sampled_.resize(limits.logits_max);
  return {};
}

void ScriptedBackend::copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) {
  if (fault_ == Fault::kDropCopies) return;
  auto& scripted = static_cast<ScriptedPool&>(pool);
  for (size_t i = 0; i < from.size(); ++i) std::ranges::copy(scripted.page(from[i]), scripted.page(to[i]).begin());
}

void ScriptedBackend::sample(const ops::SampleParams& params) {
  sample_status_ = {};
  rows_ = static_cast<uint32_t>(params.rows.size());
  check(params.logits.rows == rows_, "one row of logits for each row to sample");
  for (uint32_t i = 0; i < rows_ && sample_status_; ++i) {
    Result<ops::Sampled> sampled =
        ops::sample_row({params.logits.row(i), params.logits.columns}, params.rows[i], scratch_);
    sampled_[i] = sampled ? *sampled : ops::Sampled{.error = sampled.status().code()};
  }
}

Result<std::span<const ops::Sampled>> ScriptedBackend::collect() {
  if (!sample_status_) return sample_status_;
  return std::span<const ops::Sampled>(sampled_).first(rows_);
}

Result<std::unique_ptr<ops::Weight>> ScriptedBackend::prepare(const ops::WeightView&) {
  not_scripted();
}
Result<ops::Matrix> ScriptedBackend::allocate(uint32_t, uint32_t) {
  not_scripted();
}
void ScriptedBackend::embed(const ops::EmbedParams&) {
  not_scripted();
}
void ScriptedBackend::add_norm(const ops::AddNormParams&) {
  not_scripted();
}
void ScriptedBackend::matmul(const ops::MatmulParams&) {
  not_scripted();
}
void ScriptedBackend::rope_append(const ops::RopeAppendParams&) {
  not_scripted();
}
void ScriptedBackend::attend(const ops::AttentionParams&) {
  not_scripted();
}
void ScriptedBackend::merge(const ops::AttentionParams&) {
  not_scripted();
}
void ScriptedBackend::gate_mul(const ops::GateMulParams&) {
  not_scripted();
}
void ScriptedBackend::mix_experts(const ops::MixExpertsParams&) {
  not_scripted();
}
void ScriptedBackend::cap_logits(const ops::CapLogitsParams&) {
  not_scripted();
}
void ScriptedBackend::gather_rows(const ops::GatherRowsParams&) {
  not_scripted();
}

ScriptedDecoder::ScriptedDecoder(ScriptedBackend& backend, uint32_t vocabulary, uint32_t context_max,
                                 std::vector<uint32_t> windows)
    : backend_(backend) {
  shape_ = {.family = "scripted",
            .name = "scripted",
            .layers = 1,
            .q_heads = 2,
            .kv_heads = 1,
            .head_dim = 1,
            .vocabulary = vocabulary,
            .context_max = context_max,
            .windows = std::move(windows)};
}

Status ScriptedDecoder::prepare(const ops::StepLimits& limits, const ops::KvShape& kv) {
  sums_.resize(size_t{limits.pages_per_sequence_max} * limits.page_size + 1);
  partials_.resize(limits.plan_limits().partials_max());
  seen_.resize(limits.tokens_max);
  all_seen_.resize(limits.tokens_max);
  logits_.resize(size_t{limits.logits_max} * shape_.vocabulary);
  return backend_.reserve_scratch(limits, kv, shape_.q_heads, shape_.vocabulary);
}

void ScriptedDecoder::append(const ops::DeviceBatch& batch, ScriptedPool& pool) const {
  for (uint32_t t = 0; t < batch.tokens; ++t) {
    const std::span<uint64_t> page = pool.page(batch.append_pages[t]);
    if (batch.append_slots[t] == 0) std::ranges::fill(page, kPoison);
    if (backend_.fault() == Fault::kDropAppends && batch.append_slots[t] + 1 == page.size()) continue;
    page[batch.append_slots[t]] = key_record(batch.positions[t], batch.token_ids[t]);
  }
}

void ScriptedDecoder::attend_item(const ops::DeviceBatch& batch, const attention::Plan& plan,
                                  const attention::WorkItem& item, ScriptedPool& pool) {
  const uint32_t page_size = pool.shape().page_size;
  const uint32_t page_skipped = backend_.fault() == Fault::kWrongPage && item.token_count > 1 ? 1 : 0;
  sums_[0] = 0;
  for (uint32_t k = 0; k < item.key_count; ++k) {
    const size_t index = item.page_begin + k / page_size + page_skipped;
    const PageId page = batch.page_ids[index % batch.page_ids.size()];
    sums_[k + 1] = sums_[k] + pool.page(page)[k % page_size];
  }
  const uint32_t key_end = item.key_begin + item.key_count;
  for (uint32_t j = 0; j < item.token_count; ++j) {
    const uint32_t position = plan.token_position[item.token_begin + j];
    const auto seen_between = [&](uint32_t begin, uint32_t end) {  // keys of the item that the token sees
      begin = std::max(begin, first_key(position, plan.window));
      end = std::min(end, position + 1);
      return begin < end ? Seen{sums_[end - item.key_begin] - sums_[begin - item.key_begin], end - begin} : Seen{0, 0};
    };
    if (item.flags & attention::kDirect) {
      seen_[plan.token_order[item.token_begin + j]] = seen_between(item.key_begin, key_end);
    } else if (item.flags & attention::kFold) {
      partials_[item.partial_begin + j] = seen_between(item.key_begin, key_end);
    } else {
      uint32_t slot = item.partial_begin + j;
      for (uint32_t key = item.key_begin; key < key_end; slot += item.token_count) {
        const uint32_t next = std::min((key / plan.cut + 1) * plan.cut, key_end);
        partials_[slot] = seen_between(key, next);
        key = next;
      }
    }
  }
}

Status ScriptedDecoder::merge(const ops::DeviceBatch& batch, const attention::Plan& plan) {
  const uint32_t slots_dropped = backend_.fault() == Fault::kDropPartial ? 1 : 0;
  for (uint32_t p = 0; p < batch.tokens; ++p) {
    Seen& seen = seen_[plan.token_order[p]];
    for (uint32_t i = plan.merge_indptr[p]; i + slots_dropped < plan.merge_indptr[p + 1]; ++i)
      seen += partials_[plan.merge_slots[i]];
    const uint32_t position = batch.positions[plan.token_order[p]];
    if (seen.keys != position + 1 - first_key(position, plan.window) || plan.token_position[p] != position ||
        plan.token_empty[p] != 0) {
      return error(ErrorCode::kInternal, "the token at position {} sees {} keys through the plan of window {}",
                   position, seen.keys, plan.window);
    }
  }
  return {};
}

Result<ops::Matrix> ScriptedDecoder::forward(const ops::DeviceBatch& batch, ops::KvPool& pool) {
  if (failures_ > 0) {
    --failures_;
    return error(ErrorCode::kInternal, "the device failed (injected)");
  }
  auto& scripted = static_cast<ScriptedPool&>(pool);
  append(batch, scripted);
  std::ranges::fill(std::span(all_seen_).first(batch.tokens), 0);
  for (uint32_t i = 0; i < shape_.windows.size(); ++i) {
    const attention::Plan& plan = batch.plans[i];
    check(plan.window == shape_.windows[i], "a plan of another window than the model's");
    std::ranges::fill(std::span(partials_).first(plan.partials), Seen{kPoison, kPoison});
    std::ranges::fill(std::span(seen_).first(batch.tokens), Seen{0, 0});
    for (const attention::WorkItem& item : plan.items) attend_item(batch, plan, item, scripted);
    HEADWATER_RETURN_IF_ERROR(merge(batch, plan));
    for (uint32_t t = 0; t < batch.tokens; ++t) all_seen_[t] += seen_through(i, seen_[t].sum);
  }
  tokens_computed_ += batch.tokens;

  const auto rows = static_cast<uint32_t>(batch.logits_tokens.size());
  const ops::Matrix logits{logits_.data(), rows, shape_.vocabulary, shape_.vocabulary};
  for (uint32_t i = 0; i < rows; ++i) {
    logits_of(all_seen_[batch.logits_tokens[i]], {logits.row(i), shape_.vocabulary});
  }
  return logits;
}

}  // namespace headwater::testing
