#include "model/families/llama/llama.h"

#include <cmath>

namespace headwater::model::llama {
namespace {

using ops::Matrix;
using ops::Product;
using WeightPtr = std::unique_ptr<ops::Weight>;

Matrix rows_of(const Matrix& matrix, uint32_t rows) {
  return {matrix.data, rows, matrix.columns, matrix.stride};
}
Matrix columns_of(const Matrix& matrix, uint32_t begin, uint32_t columns) {
  return {matrix.data + begin, matrix.rows, columns, matrix.stride};
}

struct Layer {
  std::vector<float> attention_norm, feed_forward_norm;  // [d]
  WeightPtr q, k, v, output, gate, up, down;
};

struct Weights {
  ModelShape shape;
  WeightPtr embedding;  // [vocabulary, d]; also the output projection when `output` is null
  WeightPtr output;
  std::vector<float> output_norm;
  std::vector<float> inverse_frequencies;  // [rope_dims / 2]
  std::vector<Layer> layers;
};

// Prepares tensors one after another and reports progress by bytes.
class Loader {
 public:
  Loader(const GgufFile& file, ops::Backend& backend, void (*progress)(float))
      : file_(file), backend_(backend), progress_(progress) {
    for (const Tensor& tensor : file.tensors()) bytes_ += tensor.data.size();
  }

  Status load(const std::string& name, WeightPtr& out) {
    const Tensor& tensor = find(name);
    HEADWATER_ASSIGN_OR_RETURN(out,
                               backend_.prepare({tensor.data.data(), tensor.dtype, tensor.rows(), tensor.columns()}));
    report(tensor);
    return {};
  }
  Status load(const std::string& name, std::vector<float>& out) {
    const Tensor& tensor = find(name);
    out.resize(tensor.columns());
    dequantize_row(tensor.dtype, tensor.data.data(), out.size(), out.data());
    report(tensor);
    return {};
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

 private:
  const Tensor& find(const std::string& name) const {
    const Tensor* tensor = file_.find(name);
    check(tensor != nullptr, "check_tensors() comes before load");
    return *tensor;
  }
  void report(const Tensor& tensor) {
    done_ += tensor.data.size();
    if (progress_ != nullptr) progress_(static_cast<float>(done_) / static_cast<float>(bytes_));
  }

  const GgufFile& file_;
  ops::Backend& backend_;
  void (*progress_)(float);
  uint64_t bytes_ = 0, done_ = 0;
};

Status load_layer(Loader& loader, uint32_t index, Layer& layer) {
  const std::string prefix = fmt::format("blk.{}.", index);
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "attn_norm.weight", layer.attention_norm));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "attn_q.weight", layer.q));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "attn_k.weight", layer.k));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "attn_v.weight", layer.v));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "attn_output.weight", layer.output));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "ffn_norm.weight", layer.feed_forward_norm));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "ffn_gate.weight", layer.gate));
  HEADWATER_RETURN_IF_ERROR(loader.load(prefix + "ffn_up.weight", layer.up));
  return loader.load(prefix + "ffn_down.weight", layer.down);
}

class LlamaDecoder final : public Decoder {
 public:
  LlamaDecoder(const Weights& weights, ops::Backend& backend) : weights_(weights), backend_(backend) {}

  const ModelShape& shape() const override { return weights_.shape; }

  Status prepare(const ops::StepLimits& limits, const ops::KvShape& kv) override {
    const ModelShape& s = weights_.shape;
    HEADWATER_RETURN_IF_ERROR(backend_.reserve_scratch(limits, kv, s.q_heads, s.vocabulary));
    const uint32_t q = s.q_heads * s.head_dim, k = s.kv_heads * s.head_dim;
    const uint32_t tokens = limits.tokens_max, logits = limits.logits_max;
    HEADWATER_ASSIGN_OR_RETURN(residual_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(delta_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(normed_, backend_.allocate(tokens, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(qkv_, backend_.allocate(tokens, q + 2 * k));
    HEADWATER_ASSIGN_OR_RETURN(attended_, backend_.allocate(tokens, q));
    HEADWATER_ASSIGN_OR_RETURN(gate_up_, backend_.allocate(tokens, 2 * s.feed_forward));
    HEADWATER_ASSIGN_OR_RETURN(last_residual_, backend_.allocate(logits, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(last_delta_, backend_.allocate(logits, s.embedding));
    HEADWATER_ASSIGN_OR_RETURN(logits_, backend_.allocate(logits, s.vocabulary));
    return {};
  }

  Result<Matrix> forward(const ops::DeviceBatch& batch, ops::KvPool& pool) override {
    check(batch.tokens <= residual_.rows, "the batch is larger than prepare() allowed");
    const Matrix residual = rows_of(residual_, batch.tokens);
    backend_.embed({batch.token_ids, weights_.embedding.get(), residual});
    Matrix delta;  // what the previous block adds to the residual; none yet
    for (uint32_t index = 0; index < weights_.shape.layers; ++index) {
      const Layer& layer = weights_.layers[index];
      attention_block(layer, index, batch, pool, residual, delta);
      delta = rows_of(delta_, batch.tokens);
      feed_forward_block(layer, residual, delta);
    }
    return output_block(batch, residual, delta);
  }

 private:
  void attention_block(const Layer& layer, uint32_t index, const ops::DeviceBatch& batch, ops::KvPool& pool,
                       const Matrix& residual, const Matrix& delta) {
    const ModelShape& s = weights_.shape;
    const uint32_t q_columns = s.q_heads * s.head_dim, k_columns = s.kv_heads * s.head_dim;
    const Matrix normed = rows_of(normed_, batch.tokens);
    const Matrix qkv = rows_of(qkv_, batch.tokens);
    const Matrix q = columns_of(qkv, 0, q_columns);
    const Matrix k = columns_of(qkv, q_columns, k_columns);
    const Matrix v = columns_of(qkv, q_columns + k_columns, k_columns);
    const Matrix attended = rows_of(attended_, batch.tokens);

    backend_.add_norm({residual, delta, layer.attention_norm.data(), s.norm_epsilon, normed});
    const Product projections[] = {{layer.q.get(), q}, {layer.k.get(), k}, {layer.v.get(), v}};
    backend_.matmul({normed, projections});
    backend_.rope_append({q,
                          k,
                          v,
                          &batch,
                          {ops::RopeStyle::kAdjacentPairs, s.rope_dims, weights_.inverse_frequencies.data()},
                          &pool,
                          index});
    const ops::AttentionParams attention{
        q, attended, nullptr, &batch, &pool, index, s.q_heads, {1.0f / std::sqrt(static_cast<float>(s.head_dim))}};
    backend_.attend(attention);
    backend_.merge(attention);
    const Product output[] = {{layer.output.get(), rows_of(delta_, batch.tokens)}};
    backend_.matmul({attended, output});
  }

  void feed_forward_block(const Layer& layer, const Matrix& residual, const Matrix& delta) {
    const ModelShape& s = weights_.shape;
    const Matrix normed = rows_of(normed_, residual.rows);
    const Matrix gate_up = rows_of(gate_up_, residual.rows);
    const Matrix gate = columns_of(gate_up, 0, s.feed_forward);
    const Matrix up = columns_of(gate_up, s.feed_forward, s.feed_forward);

    backend_.add_norm({residual, delta, layer.feed_forward_norm.data(), s.norm_epsilon, normed});
    const Product projections[] = {{layer.gate.get(), gate}, {layer.up.get(), up}};
    backend_.matmul({normed, projections});
    backend_.gate_mul({gate, up, gate});
    const Product down[] = {{layer.down.get(), delta}};
    backend_.matmul({gate, down});
  }

  Result<Matrix> output_block(const ops::DeviceBatch& batch, const Matrix& residual, const Matrix& delta) {
    const auto rows = static_cast<uint32_t>(batch.logits_tokens.size());
    const Matrix logits = rows_of(logits_, rows);
    if (rows == 0) return logits;
    const Matrix last_residual = rows_of(last_residual_, rows);
    const Matrix last_delta = rows_of(last_delta_, rows);
    const Matrix normed = rows_of(normed_, rows);
    backend_.gather_rows({residual, batch.logits_tokens, last_residual});
    backend_.gather_rows({delta, batch.logits_tokens, last_delta});
    backend_.add_norm({last_residual, last_delta, weights_.output_norm.data(), weights_.shape.norm_epsilon, normed});
    const ops::Weight* head = weights_.output ? weights_.output.get() : weights_.embedding.get();
    const Product product[] = {{head, logits}};
    backend_.matmul({normed, product});
    return logits;
  }

  const Weights& weights_;
  ops::Backend& backend_;
  Matrix residual_, delta_, normed_;   // [tokens, d]
  Matrix qkv_;                         // [tokens, (q_heads + 2 kv_heads) * head_dim]
  Matrix attended_;                    // [tokens, q_heads * head_dim]
  Matrix gate_up_;                     // [tokens, 2 * feed_forward]
  Matrix last_residual_, last_delta_;  // [logits, d]
  Matrix logits_;                      // [logits, vocabulary]
};

class LlamaModel final : public Model {
 public:
  LlamaModel(Weights weights, ops::Backend& backend) : weights_(std::move(weights)), backend_(backend) {}
  const ModelShape& shape() const override { return weights_.shape; }
  Result<std::unique_ptr<Decoder>> create_decoder() override {
    return std::unique_ptr<Decoder>(std::make_unique<LlamaDecoder>(weights_, backend_));
  }

 private:
  Weights weights_;
  ops::Backend& backend_;
};

}  // namespace

Result<std::unique_ptr<Model>> load(const GgufFile& file, const ModelShape& shape, ops::Backend& backend,
                                    void (*progress)(float)) {
  Weights weights;
  weights.shape = shape;
  Loader loader(file, backend, progress);
  HEADWATER_RETURN_IF_ERROR(loader.load("token_embd.weight", weights.embedding));
  if (loader.has("output.weight")) HEADWATER_RETURN_IF_ERROR(loader.load("output.weight", weights.output));
  HEADWATER_RETURN_IF_ERROR(loader.load("output_norm.weight", weights.output_norm));
  weights.layers.resize(shape.layers);
  for (uint32_t index = 0; index < shape.layers; ++index) {
    HEADWATER_RETURN_IF_ERROR(load_layer(loader, index, weights.layers[index]));
  }
  weights.inverse_frequencies.resize(shape.rope_dims / 2);
  for (uint32_t i = 0; i < shape.rope_dims / 2; ++i) {
    weights.inverse_frequencies[i] =
        static_cast<float>(std::pow(static_cast<double>(shape.rope_base), -2.0 * i / shape.rope_dims));
  }
  return std::unique_ptr<Model>(std::make_unique<LlamaModel>(std::move(weights), backend));
}

}  // namespace headwater::model::llama
