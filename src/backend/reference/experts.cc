#include "backend/reference/experts.h"

namespace headwater::backend::reference {
namespace {

ops::Matrix row_of(std::vector<float>& values) {
  const auto columns = static_cast<uint32_t>(values.size());
  return {values.data(), 1, columns, columns};
}

}  // namespace

void Experts::run(const ops::MixExpertsParams& params) {
  check(params.router_logits.rows >= params.x.rows && params.router_logits.columns == params.experts.size() &&
            params.out.rows >= params.x.rows && params.out.columns == params.x.columns,
        "mix_experts: router logits [T, experts], out [T, k]");
  for (uint32_t token = 0; token < params.x.rows; ++token) run_token(params, token);
}

void Experts::run_token(const ops::MixExpertsParams& params, uint32_t token) {
  chosen_.resize(params.experts_used);
  const std::span<const float> logits(params.router_logits.row(token), params.router_logits.columns);
  ops::choose_experts(logits, params.renormalize, chosen_);
  const ops::Matrix x{params.x.row(token), 1, params.x.columns, params.x.stride};
  sums_.assign(params.x.columns, 0);
  for (const auto& [index, weight] : chosen_) {
    const ops::Expert& expert = params.experts[index];
    gate_.resize(expert.gate->rows());
    up_.resize(expert.up->rows());
    down_.resize(expert.down->rows());
    const ops::Product inner[] = {{expert.gate, row_of(gate_), expert.gate_bias},
                                  {expert.up, row_of(up_), expert.up_bias}};
    matmul_.run({x, inner});
    gate_mul({row_of(gate_), row_of(up_), row_of(gate_), params.activation});
    const ops::Product outer{expert.down, row_of(down_), expert.down_bias};
    matmul_.run({row_of(gate_), {&outer, 1}});
    check(down_.size() == sums_.size(), "mix_experts: down gives as many columns as x has");
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += static_cast<double>(weight) * down_[i];
  }
  for (size_t i = 0; i < sums_.size(); ++i) params.out.row(token)[i] = static_cast<float>(sums_[i]);
}

}  // namespace headwater::backend::reference
