#include "backend/cuda/c_interface.h"

#include <algorithm>

#include "attention/plan.h"
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/stopwatch_kernels.h"
#include "ops/step_block.h"

using namespace headwater;
using namespace headwater::backend::cuda;

struct headwater_attention {
  headwater_attention_config config;
  std::unique_ptr<ops::Backend> backend;  // step blocks, costs
  bool is_hopper;
  Attention attention;
  attention::Planner planner;
  ops::StepBlock block;
  ops::DeviceBatch batch{};
  // The maps of the pages that were run last: the same pages come back every step.
  headwater_attention_kv mapped{};
  KvPages pages{};
};

namespace {

thread_local std::string last_error;

int result_of(const Status& status) {
  if (status) return 0;
  last_error = status.message();
  return -1;
}

ops::KvShape shape_of(const headwater_attention_config& c) {
  ops::KvShape shape;
  shape.layers = 1;
  shape.kv_heads = c.kv_heads;
  shape.head_dim = shape.v_head_dim = c.head_dim;
  shape.page_size = c.page_size;
  shape.dtype = c.dtype == 0 ? DType::kBF16 : DType::kF16;
  return shape;
}

Result<std::unique_ptr<headwater_attention>> create(const headwater_attention_config& c) {
  if (c.kv_heads == 0 || c.q_heads % c.kv_heads != 0 || c.dtype > 1 || c.sharing > 2) {
    return error(
        ErrorCode::kInvalidArgument,
        "{} query heads on {} KV heads, dtype {}, sharing {}: heads must divide, dtype is 0 or 1, sharing 0 to 2",
        c.q_heads, c.kv_heads, c.dtype, c.sharing);
  }
  HEADWATER_RETURN_IF_ERROR(check_page(c.page_size, c.head_dim));
  HEADWATER_ASSIGN_OR_RETURN(auto device, backend::cuda::create({.invariant = c.invariant != 0}));
  const ops::BackendInfo& info = device->info();
  const ops::KvShape shape = shape_of(c);
  const ops::StepLimits limits{c.sequences_max, c.tokens_max, c.pages_per_sequence_max, c.page_size, 0, info.workers};
  constexpr attention::Sharing kSharings[] = {attention::Sharing::kOff, attention::Sharing::kAuto,
                                              attention::Sharing::kAlways};
  attention::PlanSettings settings;
  settings.sharing = kSharings[c.sharing];
  settings.invariant = info.invariant;
  settings.cut = info.cut;
  HEADWATER_ASSIGN_OR_RETURN(
      attention::Planner planner,
      attention::Planner::create(limits.plan_limits(), settings, device->cost_model(shape, c.q_heads),
                                 device->device_shape(shape, c.q_heads)));
  HEADWATER_ASSIGN_OR_RETURN(ops::StepBlock block, device->create_step_block(limits));
  HEADWATER_ASSIGN_OR_RETURN(const DeviceTraits traits, device_traits());
  Attention attention(traits, info.invariant, /*is_alone=*/false);
  HEADWATER_RETURN_IF_ERROR(attention.reserve(limits, c.q_heads, c.head_dim));
  return std::unique_ptr<headwater_attention>(new headwater_attention{
      c, std::move(device), traits.is_hopper, std::move(attention), std::move(planner), std::move(block)});
}

Status plan(headwater_attention& a, const attention::PageTable& table, cudaStream_t stream,
            headwater_attention_outcome* outcome) {
  const ops::StepLimits& limits = a.block.limits();
  if (table.page_ids.size() > uint64_t{limits.sequences_max} * limits.pages_per_sequence_max) {
    return error(ErrorCode::kInvalidArgument, "{} page ids; the handle was made for {} sequences of {} pages",
                 table.page_ids.size(), limits.sequences_max, limits.pages_per_sequence_max);
  }
  HEADWATER_ASSIGN_OR_RETURN(const attention::Plan* made, a.planner.plan(table));
  a.block.layout(table.sequences(), table.tokens(), 0, static_cast<uint32_t>(table.page_ids.size()));
  std::copy(table.page_ids.begin(), table.page_ids.end(), a.block.page_ids().begin());
  a.block.set_plan(*made);
  const std::span<const std::byte> bytes = a.block.bytes();
  std::byte* device = a.block.device_copy()->data();
  HEADWATER_RETURN_IF_ERROR(
      checked(cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream), "upload of a plan"));
  a.batch = a.block.batch_at(device);
  const attention::Outcome& o = made->outcome;
  if (outcome != nullptr) {
    *outcome = {static_cast<uint32_t>(o.path),
                o.groups,
                o.members,
                o.shared_pages,
                o.items,
                o.splits,
                o.bytes_read,
                o.bytes_flat,
                o.bytes_unique,
                o.predicted_ns * 1e-3,
                to_string(o.reason())};
  }
  return {};
}

Status map_pages(headwater_attention& a, const headwater_attention_kv& kv) {
  const auto same = [](const headwater_attention_kv& x, const headwater_attention_kv& y) {
    return x.k == y.k && x.v == y.v && x.pages == y.pages && x.page_stride == y.page_stride &&
           x.slot_stride == y.slot_stride && x.head_stride == y.head_stride;
  };
  if (same(kv, a.mapped)) return {};
  const headwater_attention_config& c = a.config;
  KvPages pages{};
  pages.element = c.dtype == 0 ? KvElement::kBF16 : KvElement::kF16;
  pages.layers = 1;
  pages.pages = static_cast<uint32_t>(kv.pages);
  pages.kv_heads = c.kv_heads;
  pages.head_dim = c.head_dim;
  pages.page_size = c.page_size;
  pages.view = {.k = kv.k,
                .v = kv.v,
                .page_stride = kv.page_stride,
                .head_stride = kv.head_stride,
                .slot_stride = kv.slot_stride};
  pages.layer_stride = kv.page_stride * kv.pages;
  if (a.is_hopper && c.head_dim % 8 == 0) HEADWATER_RETURN_IF_ERROR(pages.map_for_copies());
  a.pages = pages;
  a.mapped = kv;
  return {};
}

}  // namespace

int headwater_attention_create(const headwater_attention_config* config, headwater_attention** out) {
  auto created = create(*config);
  if (!created) return result_of(created.status());
  *out = std::move(created).value().release();
  return 0;
}

void headwater_attention_destroy(headwater_attention* attention) {
  delete attention;
}

int headwater_attention_plan(headwater_attention* attention, uint32_t sequences, const uint32_t* page_indptr,
                             const uint32_t* page_ids, const uint32_t* kv_len, const uint32_t* q_indptr, void* stream,
                             headwater_attention_outcome* outcome) {
  const attention::PageTable table{attention->config.page_size,        {page_indptr, sequences + size_t{1}},
                                   {page_ids, page_indptr[sequences]}, {kv_len, sequences},
                                   {q_indptr, sequences + size_t{1}},  {}};
  return result_of(plan(*attention, table, static_cast<cudaStream_t>(stream), outcome));
}

int headwater_attention_run(headwater_attention* attention, const headwater_attention_kv* kv, const void* q, void* out,
                            float* lse2, float scale, void* stream) {
  if (attention->batch.plans[0].header == nullptr) {
    return result_of(
        error(ErrorCode::kInvalidArgument, "a run before any plan; call headwater_attention_plan() first"));
  }
  if (const Status mapped = map_pages(*attention, *kv); !mapped) return result_of(mapped);
  const headwater_attention_config& c = attention->config;
  const uint64_t stride = uint64_t{c.q_heads} * c.head_dim;
  return result_of(attention->attention.attend({.batch = &attention->batch,
                                                .pages = &attention->pages,
                                                .layer = 0,
                                                .q_heads = c.q_heads,
                                                .q = q,
                                                .q_stride = stride,
                                                .out = out,
                                                .out_stride = stride,
                                                .q_is_wide = false,
                                                .out_is_wide = false,
                                                .lse2 = lse2,
                                                .variant = {.scale = scale}},
                                               static_cast<cudaStream_t>(stream)));
}

int headwater_attention_read_floor(const void* memory, uint64_t memory_bytes, uint64_t bytes, uint32_t piece_bytes,
                                   void* stream) {
  // The fastest of the grids that the stopwatch tries, by size.
  const ReadShape shape = bytes < (8u << 20) ? ReadShape{1056, 1} : ReadShape{1056, 4};
  return result_of(checked(
      launch_read(memory, memory_bytes, bytes, piece_bytes, shape, static_cast<cudaStream_t>(stream)), "reading"));
}

const char* headwater_attention_error(void) {
  return last_error.c_str();
}
