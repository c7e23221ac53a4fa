#include "backend/cpu/rowwise.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/packed_weight.h"

namespace headwater::backend::cpu {
namespace {

constexpr uint32_t kTaskValues = 1 << 13;  // a task of fewer values costs less than handing it out

}  // namespace

template <typename F>
void Rowwise::for_rows(uint32_t rows, uint32_t columns, F&& f) {
  const uint32_t rows_per_task = std::max(1u, kTaskValues / std::max(1u, columns));
  pool_.run((rows + rows_per_task - 1) / rows_per_task, [&](uint32_t task, uint32_t) {
    const uint32_t end = std::min(rows, (task + 1) * rows_per_task);
    for (uint32_t row = task * rows_per_task; row < end; ++row) f(row);
  });
}

void Rowwise::embed(const ops::EmbedParams& params) {
  const auto& table = static_cast<const PackedWeight&>(*params.table);
  const auto tokens = static_cast<uint32_t>(params.token_ids.size());
  check(params.out.rows >= tokens && params.out.columns == table.columns(), "embed: out has another shape");
  for_rows(tokens, params.out.columns, [&](uint32_t row) {
    const TokenId token = params.token_ids[row];
    check(token >= 0 && static_cast<uint64_t>(token) < table.rows(), "embed: a token outside the table");
    table.dequantize(static_cast<uint64_t>(token), params.out.row(row));
  });
}

void Rowwise::add_norm(const ops::AddNormParams& params) {
  for_rows(params.residual.rows, params.residual.columns, [&](uint32_t row) {
    const float* delta = params.delta.data == nullptr ? nullptr : params.delta.row(row);
    kernels_.add_norm(params.residual.row(row), delta, params.weight, params.epsilon, params.residual.columns,
                      params.out.row(row));
  });
}

void Rowwise::silu_mul(const ops::SiluMulParams& params) {
  for_rows(params.gate.rows, params.gate.columns, [&](uint32_t row) {
    kernels_.silu_mul(params.gate.row(row), params.up.row(row), params.gate.columns, params.out.row(row));
  });
}

void Rowwise::gather_rows(const ops::GatherRowsParams& params) {
  for_rows(static_cast<uint32_t>(params.rows.size()), params.out.columns, [&](uint32_t row) {
    check(params.rows[row] < params.in.rows, "gather_rows: a row outside the matrix");
    std::memcpy(params.out.row(row), params.in.row(params.rows[row]), params.out.columns * sizeof(float));
  });
}

}  // namespace headwater::backend::cpu
