#include "model/transformer/transformer.h"

#include <array>

namespace headwater::model {
namespace {

using ops::Matrix;
using ops::Product;

constexpr size_t kProductsMax = 3;  // of one matmul: q, k, v

Matrix rows_of(const Matrix& matrix, uint32_t rows) {
  return {matrix.data, rows, matrix.columns, matrix.stride};
}
Matrix columns_of(const Matrix& matrix, uint32_t begin, uint32_t columns) {
  return {matrix.data + begin, matrix.rows, columns, matrix.stride};
}
const float* data_or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

class TransformerDecoder final : public Decoder {
 public:
  TransformerDecoder(const Weights& weights, ops::Backend& backend)
      : weights_(weights), plan_(weights.blueprint), backend_(backend) {}

  const ModelShape& shape() const override { return plan_.shape; }

  Status prepare(const ops::StepLimits& limits, const ops::KvShape& kv) override {
    const ModelShape& s = plan_.shape;
    HEADWATER_RETURN_IF_ERROR(backend_.reserve_scratch(limits, kv, s.q_heads, s.vocabulary));
    const uint32_t q = s.q_heads * s.head_dim, k = s.kv_heads * s.head_dim;
    const uint32_t tokens = limits.tokens_max, logits = limits.logits_max;
    HEADWATER_ASSIGN_OR_RETURN(residual_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(delta_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(normed_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(qkv_, backend_.allocate(tokens, q + 2 * k));
    HEADWATER_ASSIGN_OR_RETURN(attended_, backend_.allocate(tokens, q));
    if (plan_.experts) {
      const ExpertPlan& e = *plan_.experts;
      HEADWATER_RETURN_IF_ERROR(backend_.reserve_experts({tokens, s.embedding, e.feed_forward, e.count, e.used}));
      HEADWATER_ASSIGN_OR_RETURN(router_, backend_.allocate(tokens, e.count));
    } else {
      HEADWATER_ASSIGN_OR_RETURN(gate_up_, backend_.allocate(tokens, 2 * s.feed_forward));
    }
    HEADWATER_ASSIGN_OR_RETURN(last_residual_, backend_.allocate(logits, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(last_delta_, backend_.allocate(logits, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(logits_, backend_.allocate(logits, s.vocabulary));
    ropes_.clear();
    const uint64_t context = uint64_t{limits.pages_per_sequence_max} * limits.page_size;
    for (const RopeTable& rope : plan_.ropes) {
      ropes_.push_back({plan_.rope_style(), rope.dims, rope.for_context(context).data(), rope.scale});
    }
    return {};
  }

  Result<Matrix> forward(const ops::DeviceBatch& batch, ops::KvPool& pool) override {
    check(batch.tokens <= residual_.rows, "the batch is larger than prepare() allowed");
    const Matrix residual = rows_of(residual_, batch.tokens);
    backend_.embed({batch.token_ids, weights_.embedding.get(), residual, plan_.embedding_scale});
    pending_ = {};
    for (uint32_t index = 0; index < plan_.shape.layers; ++index) {
      const LayerWeights& layer = weights_.layers[index];
      add_norm(residual, layer.attention_norm);
      attention_block(layer, index, batch, pool);
      pending_ = {rows_of(delta_, batch.tokens), data_or_null(layer.attention_norm_behind)};
      add_norm(residual, layer.feed_forward_norm);
      plan_.experts ? expert_block(layer, batch.tokens) : feed_forward_block(layer, batch.tokens);
      pending_.weight = data_or_null(layer.feed_forward_norm_behind);
    }
    return output_block(batch, residual);
  }

 private:
  // What the block before adds to the residual, through the norm behind it if there is one; no data: nothing yet.
  struct Pending {
    Matrix delta;
    const float* weight = nullptr;
  };

  // residual += what is pending; normed_ = norm(residual).
  void add_norm(const Matrix& residual, const std::vector<float>& weight) {
    backend_.add_norm({residual, pending_.delta, data_or_null(weight), plan_.shape.norm_epsilon,
                       rows_of(normed_, residual.rows), pending_.weight, plan_.residual_scale});
  }

  // The outputs lie side by side in `out`.
  void project(const Matrix& x, std::span<const LoadedLinear> linears, const Matrix& out) {
    std::array<Product, kProductsMax> products;
    uint32_t column = 0;
    for (size_t i = 0; i < linears.size(); ++i) {
      const auto columns = static_cast<uint32_t>(linears[i].weight->rows());
      products[i] = {linears[i].weight.get(), columns_of(out, column, columns), linears[i].bias_data()};
      column += columns;
    }
    backend_.matmul({x, std::span(products).first(linears.size())});
  }

  void attention_block(const LayerWeights& layer, uint32_t index, const ops::DeviceBatch& batch, ops::KvPool& pool) {
    const ModelShape& s = plan_.shape;
    const LayerPlan& own = plan_.layers[index];
    const uint32_t q_columns = s.q_heads * s.head_dim, k_columns = s.kv_heads * s.head_dim;
    const Matrix qkv = rows_of(qkv_, batch.tokens);
    const Matrix q = columns_of(qkv, 0, q_columns);
    const Matrix k = columns_of(qkv, q_columns, k_columns);
    const Matrix v = columns_of(qkv, q_columns + k_columns, k_columns);
    const Matrix attended = rows_of(attended_, batch.tokens);

    project(rows_of(normed_, batch.tokens), layer.attention_in, qkv);
    backend_.rope_append({q, k, v, &batch, ropes_[own.rope], &pool, index, data_or_null(layer.q_norm),
                          data_or_null(layer.k_norm), s.norm_epsilon, plan_.qk_norm_span});
    const ops::AttentionParams attention{
        q,         attended, nullptr,   &batch,
        &pool,     index,    s.q_heads, {plan_.attention_scale, plan_.attention_softcap, data_or_null(layer.sinks)},
        own.window};
    backend_.attend(attention);
    backend_.merge(attention);
    project(attended, {&layer.attention_out, 1}, rows_of(delta_, batch.tokens));
  }

  void feed_forward_block(const LayerWeights& layer, uint32_t tokens) {
    const uint32_t n = plan_.shape.feed_forward;
    const Matrix gate_up = rows_of(gate_up_, tokens);
    const Matrix gate = columns_of(gate_up, 0, n);
    project(rows_of(normed_, tokens), layer.feed_forward_in, gate_up);
    backend_.gate_mul({gate, columns_of(gate_up, n, n), gate, plan_.activation});
    project(gate, {&layer.feed_forward_out, 1}, rows_of(delta_, tokens));
  }

  void expert_block(const LayerWeights& layer, uint32_t tokens) {
    const ExpertPlan& experts = *plan_.experts;
    const Matrix normed = rows_of(normed_, tokens), router = rows_of(router_, tokens);
    project(normed, {&layer.router, 1}, router);
    backend_.mix_experts({normed, router, layer.expert_views, experts.used, experts.renormalize, plan_.activation,
                          rows_of(delta_, tokens)});
  }

  Result<Matrix> output_block(const ops::DeviceBatch& batch, const Matrix& residual) {
    const auto rows = static_cast<uint32_t>(batch.logits_tokens.size());
    const Matrix logits = rows_of(logits_, rows);
    if (rows == 0) return logits;
    const Matrix last_residual = rows_of(last_residual_, rows);
    const Matrix last_delta = rows_of(last_delta_, rows);
    backend_.gather_rows({residual, batch.logits_tokens, last_residual});
    backend_.gather_rows({pending_.delta, batch.logits_tokens, last_delta});
    pending_.delta = last_delta;
    add_norm(last_residual, weights_.output_norm);
    const ops::Weight* head = weights_.output ? weights_.output.get() : weights_.embedding.get();
    const Product product[] = {{head, logits}};
    backend_.matmul({rows_of(normed_, rows), product});
    if (plan_.logit_scale != 1 || plan_.logit_softcap != 0) {
      backend_.cap_logits({logits, plan_.logit_scale, plan_.logit_softcap});
    }
    return logits;
  }

  const Weights& weights_;
  const Blueprint& plan_;
  ops::Backend& backend_;
  std::vector<ops::Rope> ropes_;       // of Blueprint::ropes, for the context that prepare() was told
  Pending pending_;                    // of a forward pass
  Matrix residual_, delta_, normed_;   // [tokens, d]
  Matrix qkv_;                         // [tokens, (q_heads + 2 kv_heads) * head_dim]
  Matrix attended_;                    // [tokens, q_heads * head_dim]
  Matrix gate_up_;                     // [tokens, 2 * feed_forward]
  Matrix router_;                      // [tokens, experts]
  Matrix last_residual_, last_delta_;  // [logits, d]
  Matrix logits_;                      // [logits, vocabulary]
};

class TransformerModel final : public Model {
 public:
  TransformerModel(Weights weights, ops::Backend& backend) : weights_(std::move(weights)), backend_(backend) {}
  const ModelShape& shape() const override { return weights_.blueprint.shape; }
  Result<std::unique_ptr<Decoder>> create_decoder() override {
    return std::unique_ptr<Decoder>(std::make_unique<TransformerDecoder>(weights_, backend_));
  }

 private:
  Weights weights_;
  ops::Backend& backend_;
};

}  // namespace

std::unique_ptr<Model> create_transformer(Weights weights, ops::Backend& backend) {
  for (LayerWeights& layer : weights.layers) {
    for (const ExpertWeights& e : layer.experts) {
      layer.expert_views.push_back({e.gate.weight.get(), e.up.weight.get(), e.down.weight.get(), e.gate.bias_data(),
                                    e.up.bias_data(), e.down.bias_data()});
    }
  }
  return std::make_unique<TransformerModel>(std::move(weights), backend);
}

}  // namespace headwater::model
