#include "backend/cuda/attention/attention.h"

#include <algorithm>
#include <bit>
#include <numbers>

#include "backend/cuda/attention/policy.h"

namespace headwater::backend::cuda {
namespace {

constexpr float kLog2E = std::numbers::log2e_v<float>;

}  // namespace

Status Attention::reserve(const ops::StepLimits& limits, uint32_t q_heads, uint32_t head_dim) {
  // Kernels find the head of a row by Division.
  const uint64_t tokens_most = ((uint64_t{1} << 31) - 1) / std::max<uint64_t>(uint64_t{q_heads} * q_heads, 1);
  if (limits.tokens_max > tokens_most) {
    return error(ErrorCode::kUnsupported,
                 "steps of {} tokens with {} query heads; the CUDA back end takes {} tokens: lower "
                 "--max-num-batched-tokens",
                 limits.tokens_max, q_heads, tokens_most);
  }
  const uint64_t rows = uint64_t{limits.plan_limits().partials_max()} * q_heads;
  HEADWATER_RETURN_IF_ERROR(partials_.grow(rows * partial_floats(head_dim) * sizeof(float)));
  HEADWATER_RETURN_IF_ERROR(arrived_.grow(uint64_t{limits.tokens_max} * q_heads * sizeof(uint32_t)));
  HEADWATER_RETURN_IF_ERROR(queue_.grow(2 * sizeof(uint32_t)));
#ifndef NDEBUG
  HEADWATER_RETURN_IF_ERROR(kv_bytes_read_.grow(sizeof(unsigned long long)));
#endif
  return {};
}

bool Attention::holds(const Step& step) const {
  const ops::DevicePlan& plan = step.batch->plans[step.plan];
  const uint64_t rows = uint64_t{plan.partials} * step.q_heads;
  return rows * partial_floats(step.pages->head_dim) * sizeof(float) <= partials_.size() && queue_.size() > 0 &&
         plan.items_max > 0 && uint64_t{step.batch->tokens} * step.q_heads * sizeof(uint32_t) <= arrived_.size();
}

AttendCall Attention::call_of(const Step& step) const {
  const KvPages& pages = *step.pages;
  const ops::DevicePlan& plan = step.batch->plans[step.plan];
  AttendCall call{};
  call.k_map = pages.k_map;
  call.v_map = pages.v_map;
  call.kv = pages.layer(step.layer);
  call.header = plan.header;
  call.items = plan.items.data();
  call.items_max = plan.items_max;
  call.first_pages = plan.first_pages.data();
  call.token_order = plan.token_order.data();
  call.token_position = plan.token_position.data();
  call.merge_indptr = plan.merge_indptr.data();
  call.merge_slots = plan.merge_slots.data();
  call.token_empty = plan.token_empty.data();
  call.page_ids = step.batch->page_ids.data();
  call.q = step.q;
  call.out = step.out;
  call.q_stride = step.q_stride;
  call.out_stride = step.out_stride;
  call.lse2 = step.lse2;
  call.sinks = step.variant.sinks;
  call.partials = partials_.as<float>();
  call.arrived = arrived_.as<uint32_t>();
  call.queue = queue_.as<uint32_t>();
  call.kv_bytes_read = kv_bytes_read_.as<unsigned long long>();
  call.q_heads = step.q_heads;
  call.kv_heads = pages.kv_heads;
  call.group = step.q_heads / pages.kv_heads;
  call.group_inverse = inverse_of(call.group);
  call.tokens_slab = slab_tokens(call.group);
  call.head_dim = pages.head_dim;
  call.page_size = pages.page_size;
  if (pages.chunk > 0) {
    call.chunk_log2 = static_cast<uint32_t>(std::countr_zero(pages.chunk));
    call.chunks_page = division_by(pages.page_size / pages.chunk);
  }
  call.q_heads_division = division_by(step.q_heads);
  call.kv_heads_division = division_by(pages.kv_heads);
  call.layer = step.layer;
  call.cut = plan.cut;
  call.window = plan.window;
  call.softcap = step.variant.softcap * kLog2E;
  call.score_scale = step.variant.softcap > 0 ? step.variant.scale / step.variant.softcap : step.variant.scale * kLog2E;
  call.q_is_wide = step.q_is_wide;
  call.out_is_wide = step.out_is_wide;
  return call;
}

Status Attention::attend(const Step& step, cudaStream_t stream) {
  check(step.q_heads % step.pages->kv_heads == 0, "query heads are a multiple of the KV heads");
  check(holds(step), "a step beyond what reserve() was told");
  // Rows are written up to four columns at a time.
  if (reinterpret_cast<uintptr_t>(step.out) % (step.out_is_wide ? 16 : 8) != 0 || step.out_stride % 4 != 0) {
    return error(ErrorCode::kInvalidArgument,
                 "attention output at {} with {} elements a row; align it to 16 bytes and 4 elements",
                 fmt::ptr(step.out), step.out_stride);
  }
  if (!is_invariant_ && step.batch->plans[step.plan].cut < attention::kNoCut) {
    return error(ErrorCode::kInvalidArgument,
                 "a plan with cuts of {} keys for attention that is not invariant; plan with BackendInfo::cut",
                 step.batch->plans[step.plan].cut);
  }
  const AttendCall call = call_of(step);
  const AttendLaunch launch{stream, traits_.multiprocessors, is_invariant_, is_alone_};
  // Queries are read 16 bytes at a time.
  const auto q_address = reinterpret_cast<uintptr_t>(step.q);
  const bool is_aligned = q_address % 16 == 0 && step.q_stride % (step.q_is_wide ? 4 : 8) == 0;
  const LaunchAttend hopper = step.pages->chunk > 0 && is_aligned && step.variant.scale > 0
                                  ? hopper_variant(step.pages->element, call.head_dim, call.group)
                                  : nullptr;
  return checked(hopper != nullptr ? hopper(call, launch) : launch_generic(step.pages->element, call, launch),
                 "launch of attend");
}

attention::DeviceShape Attention::device_shape(const ops::KvShape& shape, uint32_t q_heads) const {
  const uint32_t group = q_heads / shape.kv_heads;
  attention::DeviceShape device{traits_.multiprocessors, shape.kv_heads, group, 64, shape.bytes_token_layer()};
  const Result<KvElement> element = element_of(shape.dtype);
  if (traits_.is_hopper && element && hopper_variant(*element, shape.head_dim, group) != nullptr) {
    device.tokens_half = slab_tokens(group);
    device.tokens_item_max = kStreams * device.tokens_half;
  }
  return device;
}

uint64_t Attention::take_kv_bytes_read() {
  unsigned long long bytes = 0;
  if (kv_bytes_read_.size() == 0) return 0;
  const bool is_read = cudaMemcpy(&bytes, kv_bytes_read_.data(), sizeof bytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
                       cudaMemset(kv_bytes_read_.data(), 0, sizeof bytes) == cudaSuccess;
  check(is_read, "reading the device's counter of KV bytes");
  return bytes;
}

}  // namespace headwater::backend::cuda
