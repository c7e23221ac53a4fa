#include "backend/cuda/experts/experts.h"

#include <algorithm>

#include "backend/cuda/activations.h"
#include "backend/cuda/experts/call.h"

namespace headwater::backend::cuda {
namespace {

const CudaWeight& cuda(const ops::Weight* weight) {
  return static_cast<const CudaWeight&>(*weight);
}

}  // namespace

Status Experts::reserve(const ops::ExpertsShape& shape) {
  if (shape.experts > kExpertsMax) {
    return error(ErrorCode::kUnsupported, "a layer of {} experts; the CUDA back end takes {}: use --backend cpu",
                 shape.experts, kExpertsMax);
  }
  const uint64_t slots = std::max(slots_, uint64_t{shape.tokens_max} * shape.experts_used);
  const uint64_t hidden = std::max<uint64_t>(hidden_, pairs_of(shape.hidden) * kPairColumns);
  const uint64_t columns = std::max<uint64_t>(columns_, shape.columns);
  if (slots == slots_ && hidden == hidden_ && columns == columns_) return {};
  HEADWATER_RETURN_IF_ERROR(choices_.grow(slots * sizeof(uint32_t)));
  HEADWATER_RETURN_IF_ERROR(weights_.grow(slots * sizeof(float)));
  HEADWATER_RETURN_IF_ERROR(order_.grow(slots * sizeof(uint32_t)));
  HEADWATER_RETURN_IF_ERROR(begins_.grow((kExpertsMax + 1) * sizeof(uint32_t)));
  HEADWATER_RETURN_IF_ERROR(gate_.grow(slots * hidden * sizeof(float)));
  HEADWATER_RETURN_IF_ERROR(up_.grow(slots * hidden * sizeof(float)));
  HEADWATER_RETURN_IF_ERROR(down_.grow(slots * columns * sizeof(float)));
  slots_ = slots, hidden_ = hidden, columns_ = columns;
  return {};
}

Status Experts::run(const ops::MixExpertsParams& p, Products& products, cudaStream_t stream) {
  const uint32_t tokens = p.x.rows, used = p.experts_used, slots = tokens * used;
  if (tokens == 0) return {};
  const CudaWeight &first = cuda(p.experts[0].gate), &first_down = cuda(p.experts[0].down);
  const auto hidden = static_cast<uint32_t>(first.rows());
  const uint32_t hidden_padded = first_down.columns_padded;
  check(slots <= slots_ && hidden_padded <= hidden_ && p.out.columns <= columns_, "experts beyond what was reserved");

  auto *choices = choices_.as<uint32_t>(), *order = order_.as<uint32_t>(), *begins = begins_.as<uint32_t>();
  const auto experts = static_cast<uint32_t>(p.experts.size());
  const ChooseCall choose{rows_of(p.router_logits), tokens, experts, used, p.renormalize, choices,
                          weights_.as<float>()};
  HEADWATER_RETURN_IF_ERROR(checked(launch_choose(choose, stream), "choosing experts"));
  HEADWATER_RETURN_IF_ERROR(checked(launch_group(choices, slots, experts, order, begins, stream), "grouping experts"));

  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix x, products.operand(p.x, first.columns_padded, first.is_short, stream));
  const Rows gate{gate_.data(), hidden_padded, first.is_short}, up{up_.data(), hidden_padded, first.is_short};
  const Rows down{down_.data(), p.out.columns, false};
  GroupedCall in{.weights = {},
                 .out = {gate, up},
                 .parts = 2,
                 .experts = experts,
                 .rows = hidden,
                 .pairs = first.pairs(),
                 .x = rows_of(x),
                 .slots_of_row = used,
                 .order = order,
                 .begins = begins};
  GroupedCall out{.weights = {},
                  .out = {down, {}},
                  .parts = 1,
                  .experts = experts,
                  .rows = p.out.columns,
                  .pairs = first_down.pairs(),
                  .x = gate,
                  .slots_of_row = 1,
                  .order = order,
                  .begins = begins};
  for (uint32_t e = 0; e < experts; ++e) {
    const ops::Expert& expert = p.experts[e];
    const Coding codings[] = {cuda(expert.gate).coding, cuda(expert.up).coding, cuda(expert.down).coding};
    if (codings[0] != first.coding || codings[1] != first.coding || codings[2] != first_down.coding ||
        first.is_short != first_down.is_short) {
      return error(
          ErrorCode::kUnsupported,
          "experts of one layer in several types (expert {}: {}, {} and {}); the CUDA back end takes one for gate "
          "and up and one for down: use --backend cpu",
          e, to_string(expert.gate->dtype()), to_string(expert.up->dtype()), to_string(expert.down->dtype()));
    }
    in.weights[0][e] = few_weight(cuda(expert.gate), expert.gate_bias);
    in.weights[1][e] = few_weight(cuda(expert.up), expert.up_bias);
    out.weights[0][e] = few_weight(cuda(expert.down), expert.down_bias);
  }
  HEADWATER_RETURN_IF_ERROR(checked(launch_grouped(first.coding, in, stream), "products of experts"));
  const GateMulCall gate_mul{gate, up, gate, {slots, hidden_padded}, hidden, p.activation};
  HEADWATER_RETURN_IF_ERROR(checked(launch_gate_mul(gate_mul, stream), "gate_mul of experts"));
  HEADWATER_RETURN_IF_ERROR(checked(launch_grouped(first_down.coding, out, stream), "products of experts"));
  return checked(launch_mix(down, weights_.as<float>(), used, rows_of(p.out), {tokens, p.out.columns}, stream),
                 "mixing experts");
}

}  // namespace headwater::backend::cuda
