#include "conformance/attention_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "support/kv_rows.h"

namespace headwater::testing {
namespace {

uint32_t pages_of(const std::vector<SequencePages>& forest) {
  std::set<PageId> pages;
  for (const SequencePages& sequence : forest) pages.insert(sequence.pages.begin(), sequence.pages.end());
  return static_cast<uint32_t>(pages.size());
}

}  // namespace

Sequences::Sequences(uint32_t page_size, uint32_t pages_max, Random& random)
    : page_size_(page_size), pages_(pages_max), free_(pages_max) {
  std::iota(free_.begin(), free_.end(), 0u);
  for (uint32_t i = pages_max; i > 1; --i) std::swap(free_[i - 1], free_[random.below(i)]);
}

Sequences::Sequences(uint32_t page_size, const std::vector<SequencePages>& forest, Random& random)
    : Sequences(page_size, pages_of(forest), random) {
  std::map<PageId, PageId> known;
  for (const SequencePages& sequence : forest) {
    std::vector<PageId> pages;
    for (const PageId page : sequence.pages) {
      const auto [entry, is_fresh] = known.try_emplace(page);
      if (is_fresh) entry->second = new_pages(1)[0];
      pages.push_back(entry->second);
    }
    add(pages, sequence.kv_len, sequence.q_len);
  }
}

std::vector<PageId> Sequences::new_pages(uint32_t count) {
  check(count <= free_.size(), "the case needs more pages than its pool has");
  std::vector<PageId> pages(free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  return pages;
}

void Sequences::add(const std::vector<PageId>& prefix, uint32_t kv_len, uint32_t q_len) {
  const uint32_t pages = (kv_len + page_size_ - 1) / page_size_;
  check(prefix.size() <= pages, "a prefix longer than its sequence");
  page_ids_.insert(page_ids_.end(), prefix.begin(), prefix.end());
  const std::vector<PageId> own = new_pages(pages - static_cast<uint32_t>(prefix.size()));
  page_ids_.insert(page_ids_.end(), own.begin(), own.end());
  page_indptr_.push_back(static_cast<uint32_t>(page_ids_.size()));
  kv_len_.push_back(kv_len);
  q_indptr_.push_back(q_indptr_.back() + q_len);
}

Sequences Sequences::reordered(const std::vector<uint32_t>& order) const {
  Sequences result(*this);
  result.page_indptr_.assign(1, 0);
  result.page_ids_.clear();
  result.kv_len_.clear();
  result.q_indptr_.assign(1, 0);
  for (const uint32_t r : order) {
    result.page_ids_.insert(result.page_ids_.end(), page_ids_.begin() + page_indptr_[r],
                            page_ids_.begin() + page_indptr_[r + 1]);
    result.page_indptr_.push_back(static_cast<uint32_t>(result.page_ids_.size()));
    result.kv_len_.push_back(kv_len_[r]);
    result.q_indptr_.push_back(result.q_indptr_.back() + q_indptr_[r + 1] - q_indptr_[r]);
  }
  return result;
}

AttentionCase::AttentionCase(const AttentionSetting& setting, const Sequences& sequences) : setting_(setting) {
  const ops::KvShape shape = setting.kv_shape();
  Random random(setting.seed);
  // Random signs over sqrt(D): a unit vector along which every query has the length of the offset and every key one.
  for (uint32_t d = 0; d < shape.head_dim; ++d) {
    offset_direction_.push_back((random.below(2) == 0 ? 1.0f : -1.0f) / std::sqrt(static_cast<float>(shape.head_dim)));
  }
  if (setting.has_sinks) {
    for (uint32_t head = 0; head < setting.q_heads(); ++head)
      sinks_.push_back(setting.logit_offset + 2 * random.normal());
  }
  const attention::PageTable table = sequences.table();
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    for (uint32_t at = 0; at < table.kv_len[r]; ++at) {
      visible_.emplace_back(table.page_ids[table.page_indptr[r] + at / table.page_size], at % table.page_size);
    }
  }
  std::sort(visible_.begin(), visible_.end());
  visible_.erase(std::unique(visible_.begin(), visible_.end()), visible_.end());
  const size_t slots = size_t{shape.pages} * shape.page_size * shape.kv_heads;
  keys_.assign(slots * shape.head_dim, std::numeric_limits<float>::quiet_NaN());
  values_.assign(slots * shape.v_head_dim, std::numeric_limits<float>::quiet_NaN());
  for (const auto& [page, slot] : visible_) fill_slot(page, slot, random);
}

void AttentionCase::fill_slot(PageId page, uint32_t slot, Random& random) {
  const ops::KvShape shape = setting_.kv_shape();
  for (uint32_t head = 0; head < shape.kv_heads; ++head) {
    float* k = &keys_[row_of(page, slot, head) * shape.head_dim];
    float* v = &values_[row_of(page, slot, head) * shape.v_head_dim];
    for (uint32_t d = 0; d < shape.head_dim; ++d) k[d] = random.normal();
    for (uint32_t d = 0; d < shape.v_head_dim; ++d) v[d] = random.normal();
    if (setting_.logit_offset != 0) {  // nothing but 1 along the direction, so that the offset is the same for all keys
      const float along = std::inner_product(k, k + shape.head_dim, offset_direction_.begin(), 0.0f);
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        const float across = shape.dtype == DType::kF32 ? k[d] - along * offset_direction_[d] : 0;
        k[d] = across + offset_direction_[d];
      }
    }
    round_kv_row(shape.dtype, {k, shape.head_dim});
    round_kv_row(shape.dtype, {v, shape.v_head_dim});
  }
}

std::vector<float> AttentionCase::query(const attention::PageTable& table, uint32_t sequence, uint32_t index) const {
  const uint32_t pages = (table.kv_len[sequence] + table.page_size - 1) / table.page_size;
  const uint64_t name = pages == 0 ? 0 : uint64_t{table.page_ids[table.page_indptr[sequence] + pages - 1]} + 1;
  Random random(setting_.seed + (name << 16) + (uint64_t{index} << 48));
  std::vector<float> query(uint64_t{setting_.q_heads()} * setting_.head_dim);
  for (size_t i = 0; i < query.size(); ++i) {
    const float along = setting_.logit_offset / variant().scale * offset_direction_[i % setting_.head_dim];
    query[i] = setting_.logit_size * random.normal() + along;
  }
  return query;
}

ops::AttentionVariant AttentionCase::variant() const {
  return {1 / std::sqrt(static_cast<float>(setting_.head_dim)), setting_.softcap,
          sinks_.empty() ? nullptr : sinks_.data()};
}

const float* AttentionCase::key(PageId page, uint32_t slot, uint32_t kv_head) const {
  return &keys_[row_of(page, slot, kv_head) * setting_.kv_shape().head_dim];
}

const float* AttentionCase::value(PageId page, uint32_t slot, uint32_t kv_head) const {
  return &values_[row_of(page, slot, kv_head) * setting_.kv_shape().v_head_dim];
}

NaiveAttention::Output AttentionCase::expected(const Sequences& sequences) const {
  const attention::PageTable table = sequences.table();
  std::vector<float> queries;
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    for (uint32_t i = 0; i < table.q_indptr[r + 1] - table.q_indptr[r]; ++i) {
      const std::vector<float> row = query(table, r, i);
      queries.insert(queries.end(), row.begin(), row.end());
    }
  }
  const ops::KvShape shape = setting_.kv_shape();
  const uint32_t columns = setting_.q_heads() * setting_.head_dim;
  const NaiveAttention naive{shape.kv_heads,
                             setting_.q_heads(),
                             shape.head_dim,
                             shape.v_head_dim,
                             setting_.window,
                             variant(),
                             [this](PageId page, uint32_t slot, uint32_t head) { return key(page, slot, head); },
                             [this](PageId page, uint32_t slot, uint32_t head) { return value(page, slot, head); }};
  return naive.run(table, {queries.data(), table.tokens(), columns, columns});
}

::testing::AssertionResult AttentionCase::matches(const AttentionResult& result,
                                                  const NaiveAttention::Output& expected) const {
  // In f32 a logit of size x is known to about x * 2^-21, and weights change by as much as logits do.
  Tolerance tolerance = tolerance_for(setting_.dtype, 0);
  if (setting_.dtype == DType::kF32) tolerance = tolerance.scaled(1 + std::fabs(setting_.logit_offset) / 40);
  const auto out = near(result.out, expected.v, tolerance, setting_.seed, setting_.name + ", output");
  if (!out || result.lse2.empty()) return out;
  return near(result.lse2, expected.lse2, tolerance, setting_.seed, setting_.name + ", lse2");
}

AttentionRig::AttentionRig(ops::Backend& backend, const AttentionCase& data)
    : backend_(backend), data_(data), memory_(backend) {
  Result<std::unique_ptr<ops::KvPool>> pool = backend.create_kv_pool(data.setting().pool_shape());
  check(pool.is_ok(), pool.status().message().c_str());
  pool_ = std::move(pool).value();
  std::vector<std::pair<PageId, uint32_t>> all;
  for (PageId page = 0; page < data.setting().pages; ++page) {
    for (uint32_t slot = 0; slot < data.setting().page_size; ++slot) all.emplace_back(page, slot);
  }
  append(all, true);
  append(data.visible_slots(), false);
}

ops::StepLimits AttentionRig::limits_for(const attention::PageTable& table, const attention::Plan* plan) const {
  ops::StepLimits limits{table.sequences(), table.tokens(), 1, table.page_size, 1};
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    limits.pages_per_sequence_max =
        std::max(limits.pages_per_sequence_max, table.page_indptr[r + 1] - table.page_indptr[r]);
  }
  // A random plan may have more pieces than any planner would make: room for them comes from longer sequences.
  while (plan != nullptr &&
         (limits.plan_limits().items_max() < plan->items.size() ||
          limits.plan_limits().partials_max() < std::max<size_t>(plan->partials, plan->merge_slots.size()))) {
    limits.pages_per_sequence_max *= 2;
    limits.tokens_max += 16;
    limits.sequences_max += 1;
  }
  return limits;
}

void AttentionRig::append(const std::vector<std::pair<PageId, uint32_t>>& slots, bool is_poison) {
  constexpr uint32_t kTokens = 256;
  const ops::KvShape& shape = pool_->shape();
  const ops::StepLimits limits{1, kTokens, kTokens, shape.page_size, 1};
  check(backend_.reserve_scratch(limits, shape, data_.setting().q_heads(), 32).is_ok(), "reserve_scratch");
  Result<ops::StepBlock> block = backend_.create_step_block(limits);
  check(block.is_ok(), block.status().message().c_str());
  HostMatrix k(kTokens, shape.kv_heads * shape.head_dim), v(kTokens, shape.kv_heads * shape.v_head_dim);
  memory_.clear();
  const ops::Matrix no_q = memory_.put(HostMatrix(kTokens, data_.setting().q_heads() * shape.head_dim));
  const ops::Matrix k_at = memory_.put(k), v_at = memory_.put(v);
  for (size_t done = 0; done < slots.size(); done += kTokens) {
    const auto tokens = static_cast<uint32_t>(std::min<size_t>(kTokens, slots.size() - done));
    block->layout(1, tokens, 0, 0);
    for (uint32_t t = 0; t < tokens; ++t) {
      const auto [page, slot] = slots[done + t];
      block->token_ids()[t] = 0;
      block->positions()[t] = 0;
      block->append_pages()[t] = page + data_.setting().page_base;
      block->append_slots()[t] = slot;
      for (uint32_t head = 0; head < shape.kv_heads && !is_poison; ++head) {
        std::copy_n(data_.key(page, slot, head), shape.head_dim, k.row(t) + head * shape.head_dim);
        std::copy_n(data_.value(page, slot, head), shape.v_head_dim, v.row(t) + head * shape.v_head_dim);
      }
    }
    if (!is_poison) {
      memory_.set(k_at, k);
      memory_.set(v_at, v);
    }
    const Result<ops::DeviceBatch> batch = backend_.begin_step(*block);
    check(batch.is_ok(), batch.status().message().c_str());
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      if (!is_poison && layer + 1 < shape.layers) continue;  // the other layers stay poisoned
      backend_.rope_append({rows_of(no_q, 0, tokens),
                            rows_of(k_at, 0, tokens),
                            rows_of(v_at, 0, tokens),
                            &*batch,
                            {ops::RopeStyle::kHalves, 0, nullptr},
                            pool_.get(),
                            layer});
    }
    const Status status = backend_.finish();
    check(status.is_ok(), status.message().c_str());
  }
}

AttentionResult AttentionRig::run(const Sequences& sequences, const attention::Plan& plan, bool wants_lse2,
                                  uint32_t plan_index) {
  const attention::PageTable table = sequences.table();
  const AttentionSetting& setting = data_.setting();
  const ops::KvShape& shape = pool_->shape();
  ops::StepLimits limits = limits_for(table, &plan);
  limits.plans = plan_index + 1;
  check(backend_.reserve_scratch(limits, shape, setting.q_heads(), 32).is_ok(), "reserve_scratch");
  Result<ops::StepBlock> block = backend_.create_step_block(limits);
  check(block.is_ok(), block.status().message().c_str());
  block->layout(table.sequences(), table.tokens(), 0, static_cast<uint32_t>(table.page_ids.size()));
  std::transform(table.page_ids.begin(), table.page_ids.end(), block->page_ids().begin(),
                 [&](PageId page) { return page + setting.page_base; });
  block->set_plan(plan, plan_index);

  HostMatrix q(table.tokens(), setting.q_heads() * shape.head_dim, setting.q_padding);
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    for (uint32_t t = table.q_indptr[r]; t < table.q_indptr[r + 1]; ++t) {
      const std::vector<float> row = data_.query(table, r, t - table.q_indptr[r]);
      std::copy(row.begin(), row.end(), q.row(t));
    }
  }
  // What the buffers held before must not survive: they begin as NaN.
  HostMatrix out(table.tokens(), setting.q_heads() * shape.v_head_dim), lse2(table.tokens(), setting.q_heads());
  memory_.clear();
  const ops::Matrix q_at = memory_.put(q), out_at = memory_.put(out), lse2_at = memory_.put(lse2);
  ops::AttentionVariant variant = data_.variant();
  if (variant.sinks != nullptr) variant.sinks = memory_.put(data_.sinks());
  const Result<ops::DeviceBatch> batch = backend_.begin_step(*block);
  check(batch.is_ok(), batch.status().message().c_str());
  const ops::AttentionParams params{q_at,
                                    out_at,
                                    wants_lse2 ? lse2_at.data : nullptr,
                                    &*batch,
                                    pool_.get(),
                                    shape.layers - 1,
                                    setting.q_heads(),
                                    variant,
                                    plan_index};
  backend_.attend(params);
  backend_.merge(params);
  const Status status = backend_.finish();
  check(status.is_ok(), status.message().c_str());
  memory_.get(out, out_at);
  memory_.get(lse2, lse2_at);
  return {out.values(), wants_lse2 ? lse2.values() : std::vector<float>()};
}

attention::Planner make_planner(const ops::Backend& backend, const AttentionSetting& setting,
                                const Sequences& sequences, attention::Sharing sharing, uint32_t cut, bool invariant) {
  const attention::PageTable table = sequences.table();
  attention::PlanLimits limits{table.sequences(), table.tokens(), 1, table.page_size};
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    limits.pages_per_sequence_max =
        std::max(limits.pages_per_sequence_max, table.page_indptr[r + 1] - table.page_indptr[r]);
  }
  attention::PlanSettings settings;
  settings.sharing = sharing;
  settings.cut = backend.info().invariant ? cut : backend.info().cut;
  settings.invariant = invariant;
  settings.window = setting.window;
  const ops::KvShape shape = setting.kv_shape();
  Result<attention::Planner> planner = attention::Planner::create(
      limits, settings, backend.cost_model(shape, setting.q_heads()), backend.device_shape(shape, setting.q_heads()));
  check(planner.is_ok(), planner.status().message().c_str());
  return std::move(planner).value();
}

}  // namespace headwater::testing
