#include "backend/reference/operations.h"

#include <cmath>
#include <numbers>
#include <thread>

#include "backend/reference/dot.h"

namespace headwater::backend::reference {
namespace {

constexpr uint64_t kProductsForThreads = 1 << 20;  // below this, starting threads costs more than it saves

const ViewWeight& view_of(const ops::Weight* weight) {
  return static_cast<const ViewWeight&>(*weight);
}

// What norm(values, weight) of backend.h multiplies each value with, beside its weight.
double norm_factor(const float* values, uint32_t count, float epsilon) {
  double squares = 0;
  for (uint32_t i = 0; i < count; ++i) squares += static_cast<double>(values[i]) * values[i];
  return 1 / std::sqrt(squares / count + epsilon);
}

// Norms all heads of one token, [heads * head_dim]. weight may be null.
void norm_heads(const ops::RopeAppendParams& params, const float* weight, std::span<float> heads) {
  if (weight == nullptr) return;
  const bool is_row = params.norm_span == ops::NormSpan::kRow;
  const size_t width = is_row ? heads.size() : params.pool->shape().head_dim;
  for (size_t begin = 0; begin < heads.size(); begin += width) {
    const std::span<float> normed = heads.subspan(begin, width);
    const double factor = norm_factor(normed.data(), static_cast<uint32_t>(width), params.norm_epsilon);
    for (size_t i = 0; i < width; ++i) normed[i] = static_cast<float>(normed[i] * factor * weight[i]);
  }
}

void rotate(const ops::Rope& rope, uint32_t position, float* head) {
  const uint32_t pairs = rope.dims / 2;
  for (uint32_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) * rope.inverse_frequencies[i];
    const double cosine = rope.scale * std::cos(angle), sine = rope.scale * std::sin(angle);
    const bool is_adjacent = rope.style == ops::RopeStyle::kAdjacentPairs;
    float& a = head[is_adjacent ? 2 * i : i];
    float& b = head[is_adjacent ? 2 * i + 1 : i + pairs];
    const double x = a, y = b;
    a = static_cast<float>(x * cosine - y * sine);
    b = static_cast<float>(x * sine + y * cosine);
  }
}

double gated(ops::Activation activation, double gate, double up) {
  switch (activation) {
    case ops::Activation::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case ops::Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      return 0.5 * gate * (1 + std::tanh(inner)) * up;
    }
    case ops::Activation::kSwigluClamped: {
      constexpr double kLimit = 7, kSlope = 1.702;
      const double low = gate > kLimit ? kLimit : gate;  // NaN stays NaN
      const double inside = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
      return low / (1 + std::exp(-kSlope * low)) * (inside + 1);
    }
  }
  check(false, "an activation without a formula");
  return 0;
}

}  // namespace

void embed(const ops::EmbedParams& params) {
  const ViewWeight& table = view_of(params.table);
  for (size_t t = 0; t < params.token_ids.size(); ++t) {
    const TokenId id = params.token_ids[t];
    check(id >= 0 && static_cast<uint64_t>(id) < table.rows(), "a token id outside the embedding table");
    float* out = params.out.row(t);
    table.load_row(static_cast<uint64_t>(id), out);
    for (uint64_t i = 0; i < table.columns(); ++i) out[i] *= params.scale;
  }
}

void add_norm(const ops::AddNormParams& params) {
  const uint32_t columns = params.residual.columns;
  for (uint32_t t = 0; t < params.residual.rows; ++t) {
    float *residual = params.residual.row(t), *out = params.out.row(t);
    if (params.delta.data != nullptr) {
      const float* delta = params.delta.row(t);
      const double factor = params.delta_weight == nullptr ? 1 : norm_factor(delta, columns, params.epsilon);
      for (uint32_t i = 0; i < columns; ++i) {
        const double weight = params.delta_weight == nullptr ? 1 : params.delta_weight[i];
        residual[i] += static_cast<float>(params.delta_scale * factor * delta[i] * weight);
      }
    }
    const double factor = params.weight == nullptr ? 1 : norm_factor(residual, columns, params.epsilon);
    for (uint32_t i = 0; i < columns; ++i) {
      const double weight = params.weight == nullptr ? 1 : params.weight[i];
      out[i] = static_cast<float>(residual[i] * factor * weight);
    }
  }
}

void rope_append(const ops::RopeAppendParams& params) {
  auto& pool = static_cast<Pool&>(*params.pool);
  const ops::KvShape& shape = pool.shape();
  const ops::DeviceBatch& batch = *params.batch;
  check(params.rope.dims % 2 == 0 && params.rope.dims <= shape.head_dim,
        "rotated dimensions are even and inside a head");
  std::vector<float> keys(params.k.columns);
  for (uint32_t t = 0; t < batch.tokens; ++t) {
    const uint32_t position = batch.positions[t];
    const std::span<float> queries(params.q.row(t), params.q.columns);
    norm_heads(params, params.q_norm, queries);
    for (size_t at = 0; at < queries.size(); at += shape.head_dim) rotate(params.rope, position, &queries[at]);
    if (batch.append_pages[t] == kNoPage) continue;  // a padded row
    keys.assign(params.k.row(t), params.k.row(t) + params.k.columns);
    norm_heads(params, params.k_norm, keys);
    for (uint32_t head = 0; head < shape.kv_heads; ++head) {
      const Pool::Place place{params.layer, batch.append_pages[t], head, batch.append_slots[t]};
      float* key = keys.data() + uint64_t{head} * shape.head_dim;
      rotate(params.rope, position, key);
      pool.store_key(place, key);
      pool.store_value(place, params.v.row(t) + uint64_t{head} * shape.v_head_dim);
    }
  }
}

void gate_mul(const ops::GateMulParams& params) {
  for (uint32_t t = 0; t < params.gate.rows; ++t) {
    const float *gate = params.gate.row(t), *up = params.up.row(t);
    float* out = params.out.row(t);
    for (uint32_t i = 0; i < params.gate.columns; ++i) {
      out[i] = static_cast<float>(gated(params.activation, gate[i], up[i]));
    }
  }
}

void cap_logits(const ops::CapLogitsParams& params) {
  for (uint32_t t = 0; t < params.logits.rows; ++t) {
    float* logits = params.logits.row(t);
    for (uint32_t i = 0; i < params.logits.columns; ++i) {
      double x = static_cast<double>(params.scale) * logits[i];
      if (params.softcap > 0) x = params.softcap * std::tanh(x / params.softcap);
      logits[i] = static_cast<float>(x);
    }
  }
}

void gather_rows(const ops::GatherRowsParams& params) {
  for (size_t i = 0; i < params.rows.size(); ++i) {
    check(params.rows[i] < params.in.rows, "a gathered row outside its matrix");
    const float* from = params.in.row(params.rows[i]);
    std::copy(from, from + params.in.columns, params.out.row(i));
  }
}

void Matmul::run(const ops::MatmulParams& params) {
  const uint32_t columns = params.x.columns;
  x_.resize(uint64_t{params.x.rows} * columns);
  for (uint32_t t = 0; t < params.x.rows; ++t) {
    std::copy(params.x.row(t), params.x.row(t) + columns, x_.begin() + uint64_t{t} * columns);
  }
  for (const ops::Product& product : params.products) {
    const uint64_t rows = product.weight->rows();
    check(product.weight->columns() == columns, "a weight whose columns are not those of x");
    const bool is_small = rows * columns * params.x.rows < kProductsForThreads;
    const uint64_t parts = is_small ? 1 : scratch_.size();
    std::vector<std::thread> threads;
    for (uint64_t part = 1; part < parts; ++part) {
      threads.emplace_back([this, &params, &product, rows, part, parts] {
        run_rows(params, product, rows * part / parts, rows * (part + 1) / parts, scratch_[part]);
      });
    }
    run_rows(params, product, 0, rows / parts, scratch_[0]);
    for (std::thread& thread : threads) thread.join();
  }
}

void Matmul::run_rows(const ops::MatmulParams& params, const ops::Product& product, uint64_t begin, uint64_t end,
                      Scratch& scratch) const {
  const uint64_t columns = product.weight->columns();
  scratch.loaded.resize(columns);
  for (uint64_t row = begin; row < end; ++row) {
    view_of(product.weight).load_row(row, scratch.loaded.data());
    scratch.weight.assign(scratch.loaded.begin(), scratch.loaded.end());
    const double bias = product.bias == nullptr ? 0 : product.bias[row];
    for (uint32_t t = 0; t < params.x.rows; ++t) {
      product.out.row(t)[row] = static_cast<float>(dot(&x_[t * columns], scratch.weight.data(), columns) + bias);
    }
  }
}

}  // namespace headwater::backend::reference
