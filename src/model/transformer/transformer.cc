#include "model/transformer/transformer.h"

#include <algorithm>
#include <array>
#include <map>

namespace headwater::model {
namespace {

using ops::Matrix;
using ops::Product;

constexpr size_t kProductsMax = 3;  // of one matmul: q, k, v

class TransformerDecoder final : public Decoder {
 public:
  TransformerDecoder(const Weights& weights, ops::Backend& backend)
      : weights_(weights), plan_(weights.blueprint), backend_(backend) {}
  ~TransformerDecoder() override { release(); }

  const ModelShape& shape() const override { return plan_.shape; }

  Status prepare(const ops::StepLimits& limits, const ops::KvShape& kv) override {
    const ModelShape& s = plan_.shape;
    HEADWATER_RETURN_IF_ERROR(backend_.reserve_scratch(limits, kv, s.q_heads, s.vocabulary));
    release();
    const uint32_t q = s.q_heads * s.head_dim, k = s.kv_heads * s.head_dim;
    const uint32_t tokens = limits.tokens_max, logits = limits.logits_max;
    HEADWATER_ASSIGN_OR_RETURN(residual_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(delta_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(normed_, backend_.allocate_operand(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(qkv_, backend_.allocate(tokens, q + 2 * k));
    HEADWATER_ASSIGN_OR_RETURN(attended_, backend_.allocate_operand(tokens, q));
    if (plan_.experts) {
      const ExpertPlan& e = *plan_.experts;
      HEADWATER_RETURN_IF_ERROR(backend_.reserve_experts({tokens, s.embedding, e.feed_forward, e.count, e.used}));
      HEADWATER_ASSIGN_OR_RETURN(router_, backend_.allocate(tokens, e.count));
    } else {
      HEADWATER_ASSIGN_OR_RETURN(gate_up_, backend_.allocate_operand(tokens, 2 * s.feed_forward));
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
    const auto logits = static_cast<uint32_t>(batch.logits_tokens.size());
    const bool decodes = batch.tokens == logits && logits > 0;
    const uint32_t rows = std::min({ops::recorded_rows(batch.tokens), residual_.rows, logits_.rows});
    if (!backend_.info().records || !decodes) {
      enqueue(batch, pool);
    } else if (!replay(rows, batch, pool)) {
      const ops::DeviceBatch padded = batch.padded(rows);
      enqueue(padded, pool);
      // Without a recording the next step of this size does it all again.
      if (auto made = backend_.record([&] { enqueue(padded, pool); })) recordings_[rows] = std::move(made).value();
    }
    return logits_.first_rows(logits);
  }

 private:
  void release() {
    recordings_.clear();
    for (Matrix* matrix : {&residual_, &delta_, &normed_, &qkv_, &attended_, &gate_up_, &router_, &last_residual_,
                           &last_delta_, &logits_}) {
      backend_.release(std::exchange(*matrix, {}));
    }
  }

  // A recording counts for the pool and the step block that it was made with.
  bool replay(uint32_t rows, const ops::DeviceBatch& batch, const ops::KvPool& pool) {
    const std::pair<const void*, const void*> made_for{&pool, batch.token_ids.data()};
    if (std::exchange(recorded_for_, made_for) != made_for) recordings_.clear();
    const auto known = recordings_.find(rows);
    return known != recordings_.end() && known->second->replay();
  }

  void enqueue(const ops::DeviceBatch& batch, ops::KvPool& pool) {
    const Matrix residual = residual_.first_rows(batch.tokens);
    backend_.embed({batch.token_ids, weights_.embedding.get(), residual, plan_.embedding_scale});
    pending_ = {};
    for (uint32_t index = 0; index < plan_.shape.layers; ++index) {
      const LayerWeights& layer = weights_.layers[index];
      add_norm(residual, layer.attention_norm);
      attention_block(layer, index, batch, pool);
      pending_ = {delta_.first_rows(batch.tokens), layer.attention_norm_behind.data};
      add_norm(residual, layer.feed_forward_norm);
      plan_.experts ? expert_block(layer, batch.tokens) : feed_forward_block(layer, batch.tokens);
      pending_.weight = layer.feed_forward_norm_behind.data;
    }
    output_block(batch, residual);
  }

  // What the block before adds to the residual, through the norm behind it if there is one; no data: nothing yet.
  struct Pending {
    Matrix delta;
    const float* weight = nullptr;
  };

  // residual += what is pending; normed_ = norm(residual).
  void add_norm(const Matrix& residual, const Vector& weight) {
    backend_.add_norm({residual, pending_.delta, weight.data, plan_.shape.norm_epsilon,
                       normed_.first_rows(residual.rows), pending_.weight, plan_.residual_scale});
  }

  // The outputs lie side by side in `out`.
  void project(const Matrix& x, std::span<const LoadedLinear> linears, const Matrix& out) {
    std::array<Product, kProductsMax> products;
    uint32_t column = 0;
    for (size_t i = 0; i < linears.size(); ++i) {
      products[i] = product_of(linears[i], out, column);
      column += products[i].out.columns;
    }
    backend_.matmul({x, std::span(products).first(linears.size())});
  }
  static Product product_of(const LoadedLinear& linear, const Matrix& out, uint32_t column) {
    return {linear.weight.get(), out.slice(column, static_cast<uint32_t>(linear.weight->rows())), linear.bias.data};
  }

  void attention_block(const LayerWeights& layer, uint32_t index, const ops::DeviceBatch& batch, ops::KvPool& pool) {
    const ModelShape& s = plan_.shape;
    const LayerPlan& own = plan_.layers[index];
    const uint32_t q_columns = s.q_heads * s.head_dim, k_columns = s.kv_heads * s.head_dim;
    const Matrix qkv = qkv_.first_rows(batch.tokens);
    const Matrix q = qkv.slice(0, q_columns);
    const Matrix k = qkv.slice(q_columns, k_columns);
    const Matrix v = qkv.slice(q_columns + k_columns, k_columns);
    const Matrix attended = attended_.first_rows(batch.tokens);

    project(normed_.first_rows(batch.tokens), layer.attention_in, qkv);
    backend_.rope_append({q, k, v, &batch, ropes_[own.rope], &pool, index, layer.q_norm.data, layer.k_norm.data,
                          s.norm_epsilon, plan_.qk_norm_span});
    const ops::AttentionParams attention{
        q,         attended, nullptr,   &batch,
        &pool,     index,    s.q_heads, {plan_.attention_scale, plan_.attention_softcap, layer.sinks.data},
        own.window};
    backend_.attend(attention);
    backend_.merge(attention);
    project(attended, {&layer.attention_out, 1}, delta_.first_rows(batch.tokens));
  }

  void feed_forward_block(const LayerWeights& layer, uint32_t tokens) {
    const uint32_t n = plan_.shape.feed_forward;
    const Matrix gate_up = gate_up_.first_rows(tokens);
    const Matrix gate = gate_up.slice(0, n);
    const std::span<const LoadedLinear> in = layer.feed_forward_in;
    if (in.size() == 2) {
      backend_.gated_matmul({normed_.first_rows(tokens), product_of(in[0], gate_up, 0), product_of(in[1], gate_up, n),
                             gate, plan_.activation});
    } else {
      project(normed_.first_rows(tokens), in, gate_up);
      backend_.gate_mul({gate, gate_up.slice(n, n), gate, plan_.activation});
    }
    project(gate, {&layer.feed_forward_out, 1}, delta_.first_rows(tokens));
  }

  void expert_block(const LayerWeights& layer, uint32_t tokens) {
    const ExpertPlan& experts = *plan_.experts;
    const Matrix normed = normed_.first_rows(tokens), router = router_.first_rows(tokens);
    project(normed, {&layer.router, 1}, router);
    backend_.mix_experts({normed, router, layer.expert_views, experts.used, experts.renormalize, plan_.activation,
                          delta_.first_rows(tokens)});
  }

  void output_block(const ops::DeviceBatch& batch, const Matrix& residual) {
    const auto rows = static_cast<uint32_t>(batch.logits_tokens.size());
    const Matrix logits = logits_.first_rows(rows);
    if (rows == 0) return;
    const Matrix last_residual = last_residual_.first_rows(rows);
    const Matrix last_delta = last_delta_.first_rows(rows);
    backend_.gather_rows({residual, batch.logits_tokens, last_residual});
    backend_.gather_rows({pending_.delta, batch.logits_tokens, last_delta});
    pending_.delta = last_delta;
    add_norm(last_residual, weights_.output_norm);
    const ops::Weight* head = weights_.output ? weights_.output.get() : weights_.embedding.get();
    const Product product[] = {{head, logits}};
    backend_.matmul({normed_.first_rows(rows), product});
    if (plan_.logit_scale != 1 || plan_.logit_softcap != 0) {
      backend_.cap_logits({logits, plan_.logit_scale, plan_.logit_softcap});
    }
  }

  const Weights& weights_;
  const Blueprint& plan_;
  ops::Backend& backend_;
  std::vector<ops::Rope> ropes_;                      // of Blueprint::ropes, for the context that prepare() was told
  Pending pending_;                                   // of a forward pass
  std::pair<const void*, const void*> recorded_for_;  // pool, step block
  std::map<uint32_t, std::unique_ptr<ops::Recording>> recordings_;  // of steps of decoding, by bucket
  Matrix residual_, delta_, normed_;                                // [tokens, d]
  Matrix qkv_;                                                      // [tokens, (q_heads + 2 kv_heads) * head_dim]
  Matrix attended_;                                                 // [tokens, q_heads * head_dim]
  Matrix gate_up_;                                                  // [tokens, 2 * feed_forward]
  Matrix router_;                                                   // [tokens, experts]
  Matrix last_residual_, last_delta_;                               // [logits, d]
  Matrix logits_;                                                   // [logits, vocabulary]
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
      layer.expert_views.push_back({e.gate.weight.get(), e.up.weight.get(), e.down.weight.get(), e.gate.bias.data,
                                    e.up.bias.data, e.down.bias.data});
    }
  }
  return std::make_unique<TransformerModel>(std::move(weights), backend);
}

}  // namespace headwater::model
