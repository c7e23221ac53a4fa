#include "backend/cpu/experts.h"

#include <algorithm>

namespace headwater::backend::cpu {
namespace {

Status grow(Buffer& buffer, uint64_t floats) {
  if (buffer.size() >= floats * sizeof(float)) return {};
  HEADWATER_ASSIGN_OR_RETURN(buffer, Buffer::create(floats * sizeof(float)));
  return {};
}

void grow(auto& values, uint64_t count) {
  values.resize(std::max<uint64_t>(values.size(), count));
}

}  // namespace

Status Experts::reserve(const ops::ExpertsShape& shape) {
  const uint64_t tokens = shape.tokens_max, choices = tokens * shape.experts_used;
  grow(choices_, choices);
  grow(places_, choices);
  grow(tokens_, choices);
  grow(place_begin_, uint64_t{shape.experts} + 1);
  HEADWATER_RETURN_IF_ERROR(grow(x_, tokens * shape.columns));
  HEADWATER_RETURN_IF_ERROR(grow(gate_up_, tokens * 2 * shape.hidden));
  return grow(down_, choices * shape.columns);
}

void Experts::run(const ops::MixExpertsParams& params) {
  const uint64_t tokens = params.x.rows, choices = tokens * params.experts_used;
  check(params.router_logits.rows >= tokens && params.router_logits.columns == params.experts.size(),
        "mix_experts: router logits have another shape");
  check(params.out.rows >= tokens && params.out.columns == params.x.columns, "mix_experts: out has another shape");
  check(choices <= choices_.size() && params.experts.size() < place_begin_.size() &&
            choices * params.x.columns <= down_.as<float>().size() &&
            tokens * params.x.columns <= x_.as<float>().size(),
        "mix_experts: more than reserve_experts() was told");
  choose(params);
  group(params);
  for (uint32_t index = 0; index < params.experts.size(); ++index) {
    if (place_begin_[index] < place_begin_[index + 1]) run_expert(params, index);
  }
  add_up(params);
}

void Experts::choose(const ops::MixExpertsParams& params) {
  const uint32_t used = params.experts_used;
  rowwise_.for_rows(params.x.rows, params.router_logits.columns, [&](uint32_t token) {
    const std::span<const float> logits(params.router_logits.row(token), params.router_logits.columns);
    ops::choose_experts(logits, params.renormalize, {choices_.data() + uint64_t{token} * used, used});
  });
}

// A counting sort of the choices by expert.
void Experts::group(const ops::MixExpertsParams& params) {
  const uint32_t used = params.experts_used, choices = params.x.rows * used;
  std::fill_n(place_begin_.begin(), params.experts.size() + 1, 0);
  for (uint32_t i = 0; i < choices; ++i) ++place_begin_[choices_[i].expert + 1];
  for (size_t e = 0; e < params.experts.size(); ++e) place_begin_[e + 1] += place_begin_[e];
  for (uint32_t i = 0; i < choices; ++i) {
    places_[i] = place_begin_[choices_[i].expert]++;
    tokens_[places_[i]] = i / used;
  }
  // Each beginning has moved to its end, the next one's beginning.
  std::copy_backward(place_begin_.begin(), place_begin_.begin() + static_cast<ptrdiff_t>(params.experts.size()),
                     place_begin_.begin() + static_cast<ptrdiff_t>(params.experts.size()) + 1);
  place_begin_[0] = 0;
}

void Experts::run_expert(const ops::MixExpertsParams& params, uint32_t index) {
  const ops::Expert& expert = params.experts[index];
  const uint32_t begin = place_begin_[index], rows = place_begin_[index + 1] - begin;
  const uint32_t columns = params.x.columns, hidden = static_cast<uint32_t>(expert.gate->rows());
  check(uint64_t{rows} * 2 * hidden <= gate_up_.as<float>().size(),
        "mix_experts: more than reserve_experts() was told");
  const ops::Matrix x{x_.as<float>().data(), rows, columns, columns};
  const ops::Matrix gate{gate_up_.as<float>().data(), rows, hidden, 2 * uint64_t{hidden}};
  const ops::Matrix up{gate.data + hidden, rows, hidden, gate.stride};
  const ops::Matrix down{down_.as<float>().data() + uint64_t{begin} * columns, rows, columns, columns};
  rowwise_.gather_rows({params.x, {tokens_.data() + begin, rows}, x});
  const ops::Product inner[] = {{expert.gate, gate, expert.gate_bias}, {expert.up, up, expert.up_bias}};
  products_.run({x, inner});
  rowwise_.gate_mul({gate, up, gate, params.activation});
  const ops::Product outer[] = {{expert.down, down, expert.down_bias}};
  products_.run({gate, outer});
}

void Experts::add_up(const ops::MixExpertsParams& params) {
  const uint32_t used = params.experts_used, columns = params.x.columns;
  rowwise_.for_rows(params.x.rows, columns * used, [&](uint32_t token) {
    float* out = params.out.row(token);
    std::fill_n(out, columns, 0.0f);
    for (uint64_t i = uint64_t{token} * used; i < uint64_t{token + 1} * used; ++i) {
      const float* down = down_.as<const float>().data() + uint64_t{places_[i]} * columns;
      for (uint32_t k = 0; k < columns; ++k) out[k] += choices_[i].weight * down[k];
    }
  });
}

}  // namespace headwater::backend::cpu
