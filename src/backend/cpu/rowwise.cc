#include "backend/cpu/rowwise.h"

#include <cstring>

#include "backend/cpu/packed_weight.h"

namespace headwater::backend::cpu {
namespace {

StepKernels::GateMul kernel_of(const StepKernels& kernels, ops::Activation activation) {
  switch (activation) {
    case ops::Activation::kSilu:
      return kernels.silu_mul;
    case ops::Activation::kGeluTanh:
      return kernels.gelu_tanh_mul;
    case ops::Activation::kSwigluClamped:
      return kernels.swiglu_clamped_mul;
  }
  check(false, "an activation without a kernel");
  return nullptr;
}

}  // namespace

void Rowwise::embed(const ops::EmbedParams& params) {
  const auto& table = static_cast<const PackedWeight&>(*params.table);
  const auto tokens = static_cast<uint32_t>(params.token_ids.size());
  check(params.out.rows >= tokens && params.out.columns == table.columns(), "embed: out has another shape");
  for_rows(tokens, params.out.columns, [&](uint32_t row) {
    const TokenId token = params.token_ids[row];
    check(token >= 0 && static_cast<uint64_t>(token) < table.rows(), "embed: a token outside the table");
    float* out = params.out.row(row);
    table.dequantize(static_cast<uint64_t>(token), out);
    if (params.scale == 1) return;
    for (uint32_t k = 0; k < params.out.columns; ++k) out[k] *= params.scale;
  });
}

void Rowwise::add_norm(const ops::AddNormParams& params) {
  for_rows(params.residual.rows, params.residual.columns, [&](uint32_t row) {
    kernels_.add_norm({.residual = params.residual.row(row),
                       .delta = params.delta.data == nullptr ? nullptr : params.delta.row(row),
                       .delta_weight = params.delta_weight,
                       .delta_scale = params.delta_scale,
                       .weight = params.weight,
                       .epsilon = params.epsilon,
                       .columns = params.residual.columns,
                       .out = params.out.row(row)});
  });
}

void Rowwise::gate_mul(const ops::GateMulParams& params) {
  const StepKernels::GateMul kernel = kernel_of(kernels_, params.activation);
  for_rows(params.gate.rows, params.gate.columns, [&](uint32_t row) {
    kernel(params.gate.row(row), params.up.row(row), params.gate.columns, params.out.row(row));
  });
}

void Rowwise::cap_logits(const ops::CapLogitsParams& params) {
  if (params.scale == 1 && params.softcap == 0) return;
  for_rows(params.logits.rows, params.logits.columns, [&](uint32_t row) {
    kernels_.cap(params.logits.row(row), params.scale, params.softcap, params.logits.columns);
  });
}

void Rowwise::gather_rows(const ops::GatherRowsParams& params) {
  for_rows(static_cast<uint32_t>(params.rows.size()), params.out.columns, [&](uint32_t row) {
    check(params.rows[row] < params.in.rows, "gather_rows: a row outside the matrix");
    std::memcpy(params.out.row(row), params.in.row(params.rows[row]), params.out.columns * sizeof(float));
  });
}

}  // namespace headwater::backend::cpu
