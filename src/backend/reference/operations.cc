#include "backend/reference/operations.h"

#include <cmath>
#include <thread>

#include "backend/reference/dot.h"

namespace headwater::backend::reference {
namespace {

constexpr uint64_t kProductsForThreads = 1 << 20;  // below this, starting threads costs more than it saves

const ViewWeight& view_of(const ops::Weight* weight) {
  return static_cast<const ViewWeight&>(*weight);
}

// weight may be null.
void norm_head(const float* weight, float epsilon, uint32_t width, float* head) {
  if (weight == nullptr) return;
  double squares = 0;
  for (uint32_t i = 0; i < width; ++i) squares += static_cast<double>(head[i]) * head[i];
  const double factor = 1 / std::sqrt(squares / width + epsilon);
  for (uint32_t i = 0; i < width; ++i) head[i] = static_cast<float>(head[i] * factor * weight[i]);
}

void rotate(const ops::Rope& rope, uint32_t position, float* head) {
  const uint32_t pairs = rope.dims / 2;
  for (uint32_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) * rope.inverse_frequencies[i];
    const double cosine = std::cos(angle), sine = std::sin(angle);
    const bool is_adjacent = rope.style == ops::RopeStyle::kAdjacentPairs;
    float& a = head[is_adjacent ? 2 * i : i];
    float& b = head[is_adjacent ? 2 * i + 1 : i + pairs];
    const double x = a, y = b;
    a = static_cast<float>(x * cosine - y * sine);
    b = static_cast<float>(x * sine + y * cosine);
  }
}

}  // namespace

void embed(const ops::EmbedParams& params) {
  const ViewWeight& table = view_of(params.table);
  for (size_t t = 0; t < params.token_ids.size(); ++t) {
    const TokenId id = params.token_ids[t];
    check(id >= 0 && static_cast<uint64_t>(id) < table.rows(), "a token id outside the embedding table");
    table.load_row(static_cast<uint64_t>(id), params.out.row(t));
  }
}

void add_norm(const ops::AddNormParams& params) {
  const uint32_t columns = params.residual.columns;
  for (uint32_t t = 0; t < params.residual.rows; ++t) {
    float* residual = params.residual.row(t);
    if (params.delta.data != nullptr) {
      const float* delta = params.delta.row(t);
      for (uint32_t i = 0; i < columns; ++i) residual[i] += delta[i];
    }
    double squares = 0;
    for (uint32_t i = 0; i < columns; ++i) squares += static_cast<double>(residual[i]) * residual[i];
    const double factor = 1 / std::sqrt(squares / columns + params.epsilon);
    float* out = params.out.row(t);
    for (uint32_t i = 0; i < columns; ++i) out[i] = static_cast<float>(residual[i] * factor * params.weight[i]);
  }
}

void rope_append(const ops::RopeAppendParams& params) {
  auto& pool = static_cast<Pool&>(*params.pool);
  const ops::KvShape& shape = pool.shape();
  const ops::DeviceBatch& batch = *params.batch;
  check(params.rope.dims % 2 == 0 && params.rope.dims <= shape.head_dim,
        "rotated dimensions are even and inside a head");
  const uint32_t q_heads = params.q.columns / shape.head_dim;
  std::vector<float> key(shape.head_dim);
  for (uint32_t t = 0; t < batch.tokens; ++t) {
    const uint32_t position = batch.positions[t];
    for (uint32_t head = 0; head < q_heads; ++head) {
      float* query = params.q.row(t) + uint64_t{head} * shape.head_dim;
      norm_head(params.q_norm, params.norm_epsilon, shape.head_dim, query);
      rotate(params.rope, position, query);
    }
    if (batch.append_pages[t] == kNoPage) continue;  // a padded row
    for (uint32_t head = 0; head < shape.kv_heads; ++head) {
      const Pool::Place place{params.layer, batch.append_pages[t], head, batch.append_slots[t]};
      const float* from = params.k.row(t) + uint64_t{head} * shape.head_dim;
      key.assign(from, from + shape.head_dim);
      norm_head(params.k_norm, params.norm_epsilon, shape.head_dim, key.data());
      rotate(params.rope, position, key.data());
      pool.store_key(place, key.data());
      pool.store_value(place, params.v.row(t) + uint64_t{head} * shape.v_head_dim);
    }
  }
}

void silu_mul(const ops::SiluMulParams& params) {
  for (uint32_t t = 0; t < params.gate.rows; ++t) {
    const float *gate = params.gate.row(t), *up = params.up.row(t);
    float* out = params.out.row(t);
    for (uint32_t i = 0; i < params.gate.columns; ++i) {
      const double x = gate[i];
      out[i] = static_cast<float>(x / (1 + std::exp(-x)) * up[i]);
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
