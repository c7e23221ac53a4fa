#include "backend/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headwater::backend::cpu {
namespace {

constexpr float kLog2E = std::numbers::log2e_v<float>;
constexpr uint32_t kTokensTask = 4;  // tokens of a merge or rope_append task

KvElement element_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return KvElement::kF32;
    case DType::kF16:
      return KvElement::kF16;
    case DType::kF8E4M3:
      return KvElement::kF8;
    default:
      return KvElement::kBF16;
  }
}

LayerPages layer_pages(const ops::KvPool& kv_pool, uint32_t layer) {
  const auto& pool = static_cast<const CpuKvPool&>(kv_pool);
  const ops::KvShape& shape = pool.shape();
  return {pool.page(layer, 0), pool.page_bytes(), pool.head_bytes(),      shape.page_size,
          shape.head_dim,      shape.v_head_dim,  element_of(shape.dtype)};
}

Status grow(Buffer& buffer, uint64_t bytes) {
  if (buffer.size() >= bytes) return {};
  HEADWATER_ASSIGN_OR_RETURN(buffer, Buffer::create(bytes));
  return {};
}

// Calls f(token) for every token, a few to a task.
template <typename F>
void for_tokens(ThreadPool& pool, uint32_t tokens, F&& f) {
  pool.run((tokens + kTokensTask - 1) / kTokensTask, [&](uint32_t task, uint32_t) {
    const uint32_t end = std::min(tokens, (task + 1) * kTokensTask);
    for (uint32_t token = task * kTokensTask; token < end; ++token) f(token);
  });
}

}  // namespace

const AttentionKernels& attention_kernels(Target target) {
  switch (target) {
    case Target::kScalar:
      return kAttentionScalar;
    case Target::kAvx2:
      return kAttentionAvx2;
    case Target::kAvx512:
      return kAttentionAvx512;
    case Target::kAvx512Bf16:
      return kAttentionAvx512Bf16;
    case Target::kAvx512Amx:
      return kAttentionAvx512Amx;
  }
  check(false, "a target without attention kernels");
  return kAttentionScalar;
}

Attention::Attention(Target target, ThreadPool& pool)
    : target_(target),
      kernels_(attention_kernels(target)),
      pool_(pool),
      costs_(built_in_costs(target)),
      workers_(pool.size()) {}

Status Attention::reserve(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads) {
  check(q_heads % shape.kv_heads == 0, "query heads are a multiple of the KV heads");
  const uint64_t rows = uint64_t{kTokensBlock} * (q_heads / shape.kv_heads);
  const uint64_t cells = uint64_t{kTilesTogether} * kRowsTileMax * (kCutMax + kRowsTileMax);
  const auto keep_largest = [](uint64_t& largest, uint64_t bytes) { return largest = std::max(largest, bytes); };
  const uint64_t q_bytes = keep_largest(largest_.q, (rows + kRowsTileMax) * shape.head_dim * kFactorBytesMax);
  const uint64_t lse2_bytes = keep_largest(largest_.lse2, (rows + kRowsTileMax) * sizeof(float));
  const uint64_t scores_bytes = cells * sizeof(float);
  const uint64_t weights_bytes = cells * kFactorBytesMax;
  const uint64_t sums_bytes =
      keep_largest(largest_.sums, uint64_t{kTilesTogether} * kRowsTileMax * shape.v_head_dim * sizeof(float));
  const uint64_t tail_bytes =
      keep_largest(largest_.tail, uint64_t{shape.page_size} * shape.v_head_dim * block_bytes(shape.dtype));
  const bool is_f8 = shape.dtype == DType::kF8E4M3;
  const uint64_t wide_bytes = keep_largest(
      largest_.wide, is_f8 ? uint64_t{kCutMax} * std::max(shape.head_dim, kWideColumns) * sizeof(uint16_t) : 0);
  const uint64_t scales_bytes = keep_largest(largest_.scales, is_f8 ? 2 * kCutMax * sizeof(float) : 0);
  for (Worker& worker : workers_) {
    HEADWATER_RETURN_IF_ERROR(grow(worker.memory, q_bytes + lse2_bytes + scores_bytes + weights_bytes + sums_bytes +
                                                      tail_bytes + wide_bytes + scales_bytes));
    std::byte* at = worker.memory.data();
    const auto take = [&](uint64_t bytes) { return std::exchange(at, at + bytes); };
    worker.scratch.scores = reinterpret_cast<float*>(take(scores_bytes));
    worker.scratch.weights = take(weights_bytes);
    worker.scratch.wide = reinterpret_cast<uint16_t*>(take(wide_bytes));
    worker.scratch.scales = reinterpret_cast<float*>(take(scales_bytes));
    worker.scratch.sums = reinterpret_cast<float*>(take(sums_bytes));
    worker.scratch.q = take(q_bytes);
    worker.scratch.tail = take(tail_bytes);
    worker.scratch.fold_lse2 = reinterpret_cast<float*>(take(lse2_bytes));
  }
  const uint64_t states = uint64_t{limits.plan_limits().partials_max()} * q_heads;
  HEADWATER_RETURN_IF_ERROR(grow(partial_values_, states * shape.v_head_dim * sizeof(float)));
  HEADWATER_RETURN_IF_ERROR(grow(partial_lse2_, states * sizeof(float)));
  for (Angles& angles : angles_) {
    HEADWATER_RETURN_IF_ERROR(grow(angles.memory, uint64_t{limits.tokens_max} * 2 * shape.head_dim * sizeof(float)));
    angles.positions.clear();
    angles.positions.reserve(limits.tokens_max);
    angles.inverse_frequencies.reserve(shape.head_dim / 2);
  }
  return {};
}

AttendCall Attention::call_of(const ops::AttentionParams& params) const {
  const attention::Plan& plan = params.batch->plans[params.plan];
  AttendCall call{};
  call.pages = layer_pages(*params.pool, params.layer);
  call.q = params.q.data;
  call.q_stride = params.q.stride;
  call.out = params.out.data;
  call.out_stride = params.out.stride;
  call.lse2 = params.lse2;
  call.q_heads = params.q_heads;
  call.group = params.q_heads / params.pool->shape().kv_heads;
  call.score_scale = params.variant.scale * kLog2E;
  call.softcap = params.variant.softcap * kLog2E;
  call.sinks = params.variant.sinks;
  call.page_ids = params.batch->page_ids.data();
  call.token_order = plan.token_order.data();
  call.token_position = plan.token_position.data();
  call.merge_indptr = plan.merge_indptr.data();
  call.merge_slots = plan.merge_slots.data();
  call.token_empty = plan.token_empty.data();
  call.cut = plan.cut;
  call.window = plan.window;
  call.partial_values = partial_values_.as<float>().data();
  call.partial_lse2 = partial_lse2_.as<float>().data();
  check(call.cut > 0 && call.cut <= kCutMax && call.cut % call.pages.page_size == 0,
        "a cut is whole pages, <= 1024 keys");
  check(uint64_t{plan.partials} * call.q_heads <= partial_lse2_.as<float>().size(), "partials beyond the reserved");
  return call;
}

void Attention::attend(const ops::AttentionParams& params) {
  const AttendCall call = call_of(params);
  const std::span<const attention::WorkItem> items = params.batch->plans[params.plan].items;
  const auto item_count = static_cast<uint32_t>(items.size());
  pool_.run(item_count * params.pool->shape().kv_heads, [&](uint32_t task, uint32_t worker) {
    const attention::WorkItem& item = items[task % item_count];
    const AttendItem plain = {item.token_begin,
                              item.token_count,
                              item.page_begin,
                              item.key_begin,
                              item.key_count,
                              item.partial_begin,
                              (item.flags & (attention::kFold | attention::kDirect)) != 0,
                              (item.flags & attention::kDirect) != 0};
    kernels_.attend(call, plain, task / item_count, workers_[worker].scratch);
  });
}

void Attention::merge(const ops::AttentionParams& params) {
  const AttendCall call = call_of(params);
  for_tokens(pool_, params.batch->tokens, [&](uint32_t token) { kernels_.merge(call, token); });
}

bool Attention::Angles::are_of(const ops::DeviceBatch& batch, const ops::Rope& rope) const {
  return style == rope.style && scale == rope.scale && std::ranges::equal(positions, batch.positions) &&
         std::ranges::equal(inverse_frequencies, std::span(rope.inverse_frequencies, rope.dims / 2));
}

void Attention::fill(Angles& angles, const ops::DeviceBatch& batch, const ops::Rope& rope) {
  const std::span<float> table = angles.memory.as<float>();
  const std::span<const float> frequencies(rope.inverse_frequencies, rope.dims / 2);
  check(uint64_t{batch.tokens} * 2 * rope.dims <= table.size(), "more tokens than reserved");
  angles.style = rope.style;
  angles.scale = rope.scale;
  angles.positions.assign(batch.positions.begin(), batch.positions.end());
  angles.inverse_frequencies.assign(frequencies.begin(), frequencies.end());
  for_tokens(pool_, batch.tokens, [&](uint32_t token) {
    float* cosines = table.data() + uint64_t{token} * 2 * rope.dims;
    float* sines = cosines + rope.dims;
    const bool adjacent = rope.style == ops::RopeStyle::kAdjacentPairs;
    for (uint32_t i = 0; i < frequencies.size(); ++i) {
      const double angle = static_cast<double>(batch.positions[token]) * frequencies[i];
      const uint32_t first = adjacent ? 2 * i : i;
      const uint32_t second = adjacent ? 2 * i + 1 : i + rope.dims / 2;
      cosines[first] = cosines[second] = static_cast<float>(rope.scale * std::cos(angle));
      sines[second] = static_cast<float>(rope.scale * std::sin(angle));
      sines[first] = -sines[second];
    }
  });
}

const float* Attention::angles_of(const ops::DeviceBatch& batch, const ops::Rope& rope) {
  if (!angles_[0].are_of(batch, rope)) {
    std::swap(angles_[0], angles_[1]);
    if (!angles_[0].are_of(batch, rope)) fill(angles_[0], batch, rope);
  }
  return angles_[0].memory.as<float>().data();
}

void Attention::rope_append(const ops::RopeAppendParams& params) {
  const ops::DeviceBatch& batch = *params.batch;
  RopeAppendCall call{};
  call.pages = layer_pages(*params.pool, params.layer);
  call.q = params.q.data;
  call.k = params.k.data;
  call.v = params.v.data;
  call.q_stride = params.q.stride;
  call.k_stride = params.k.stride;
  call.v_stride = params.v.stride;
  call.kv_heads = params.pool->shape().kv_heads;
  call.q_heads = params.q.columns / call.pages.key_width;
  call.angles = angles_of(batch, params.rope);
  call.dims = params.rope.dims;
  call.adjacent = params.rope.style == ops::RopeStyle::kAdjacentPairs;
  call.q_norm = params.q_norm;
  call.k_norm = params.k_norm;
  call.row_norms = params.norm_span == ops::NormSpan::kRow;
  call.norm_epsilon = params.norm_epsilon;
  call.append_pages = batch.append_pages.data();
  call.append_slots = batch.append_slots.data();
  for_tokens(pool_, batch.tokens, [&](uint32_t token) { kernels_.rope_append(call, token); });
}

uint64_t Attention::take_kv_bytes_read() {
  uint64_t bytes = 0;
  for (Worker& worker : workers_) bytes += std::exchange(worker.scratch.kv_bytes_read, 0);
  return bytes;
}

attention::CostModel Attention::cost_model(const ops::KvShape& shape, uint32_t q_heads) const {
  return cpu::cost_model(costs_, target_, pool_.size(), shape, q_heads);
}

}  // namespace headwater::backend::cpu
