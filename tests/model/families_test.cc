// What loading a file that is a valid GGUF but not a valid model says: the tensor or key, what was found, what was
// expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/registry/registry.h"
#include "model/model.h"
#include "support/tiny_model.h"

namespace headwater::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Status load(const TinyModel& model) {
  const std::vector<std::byte> image = model.image(1);
  HEADWATER_ASSIGN_OR_RETURN(model::GgufFile file, model::GgufFile::parse(image));
  HEADWATER_ASSIGN_OR_RETURN(const auto backend, backend::create_backend("reference", {.threads = 1}));
  return model::load_model(model::Checkpoint(std::move(file)), *backend).status();
}

TinyModel tiny() {
  return {TinyShape{}, DType::kF32};
}

template <typename Value>
Status load_with(const char* key, Value value) {
  TinyModel model = tiny();
  model.metadata[key] = value;
  return load(model);
}

TEST(LlamaFamily, ReadsItsShapeFromTheMetadata) {
  const std::vector<std::byte> image = TinyModel({.embedding = 96, .head_dim = 32}, DType::kQ8_0).image(1);
  auto file = model::GgufFile::parse(image);
  ASSERT_TRUE(file) << file.status().message();
  const model::Checkpoint checkpoint(std::move(file).value());
  const Result<model::ModelShape> shape = model::read_shape(checkpoint);
  ASSERT_TRUE(shape) << shape.status().message();
  EXPECT_EQ(shape->family, "llama");
  EXPECT_EQ(shape->name, "tiny");
  EXPECT_EQ(shape->layers, 2u);
  EXPECT_EQ(shape->embedding, 96u);
  EXPECT_EQ(shape->q_heads, 4u);
  EXPECT_EQ(shape->kv_heads, 2u);
  EXPECT_EQ(shape->head_dim, 32u);
  EXPECT_EQ(shape->rope_dims, 32u);
  EXPECT_EQ(shape->vocabulary, 300u);
  EXPECT_EQ(shape->context_max, 512u);
  EXPECT_FLOAT_EQ(shape->norm_epsilon, 1e-5f);
  uint64_t bytes = 0;
  for (const model::Tensor& tensor : checkpoint.tensors()) bytes += tensor.data.size();
  EXPECT_EQ(shape->weight_bytes, bytes);
  EXPECT_TRUE(model::check_tensors(checkpoint));
}

TEST(LlamaFamily, FillsInWhatTheMetadataLeaveOut) {
  TinyModel model = tiny();
  for (const char* key : {"llama.attention.key_length", "llama.attention.value_length", "llama.rope.freq_base"}) {
    model.metadata.erase(key);
  }
  const std::vector<std::byte> image = model.image(1);
  auto file = model::GgufFile::parse(image);
  ASSERT_TRUE(file) << file.status().message();
  const model::Checkpoint checkpoint(std::move(file).value());
  const Result<model::ModelShape> shape = model::read_shape(checkpoint);
  ASSERT_TRUE(shape) << shape.status().message();
  EXPECT_EQ(shape->head_dim, 16u);
  EXPECT_EQ(shape->rope_base, 10000.0f);
}

TEST(LlamaFamily, NamesAMissingTensorAndItsShape) {
  TinyModel model = tiny();
  std::erase_if(model.tensors, [](const TinyModel::Tensor& tensor) { return tensor.name == "blk.1.ffn_up.weight"; });
  const Status status = load(model);
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("blk.1.ffn_up.weight"), HasSubstr("[64, 160]"), HasSubstr("missing")));
}

TEST(LlamaFamily, NamesAMissingEmbedding) {
  TinyModel model = tiny();
  std::erase_if(model.tensors, [](const TinyModel::Tensor& tensor) { return tensor.name == "token_embd.weight"; });
  EXPECT_THAT(load(model).message(), AllOf(HasSubstr("token_embd.weight"), HasSubstr("missing")));
}

TEST(LlamaFamily, RefusesATensorItWouldNotUse) {
  TinyModel model = tiny();
  model.tensors.push_back({"blk.0.attn_q.bias", DType::kF32, {64}});
  const Status status = load(model);
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("blk.0.attn_q.bias"), HasSubstr("not supported")));
}

TEST(LlamaFamily, RefusesTensorsOfALayerThatTheMetadataDoNotCount) {
  const Status status = load_with("llama.block_count", 1u);
  EXPECT_THAT(status.message(), HasSubstr("blk.1."));
}

TEST(LlamaFamily, NamesAWrongShapeAndTheRightOne) {
  TinyModel model = tiny();
  model.tensor("blk.0.attn_k.weight").shape = {64, 64};
  const Status status = load(model);
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("blk.0.attn_k.weight"), HasSubstr("[64, 64]"), HasSubstr("expected [64, 32]")));
  model = tiny();
  model.tensor("output_norm.weight").shape = {32};
  EXPECT_THAT(load(model).message(),
              AllOf(HasSubstr("output_norm.weight"), HasSubstr("[32]"), HasSubstr("expected [64]")));
}

TEST(LlamaFamily, NamesAMissingKey) {
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.context_length", "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    TinyModel model = tiny();
    model.metadata.erase(key);
    const Status status = load(model);
    EXPECT_EQ(status.code(), ErrorCode::kNotFound) << key;
    EXPECT_THAT(status.message(), HasSubstr(key));
  }
}

TEST(LlamaFamily, RefusesNumbersOutOfRange) {
  const auto expect_refused = [](const Status& status, const char* key, const char* value) {
    EXPECT_FALSE(status) << key;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(key), HasSubstr(value)));
  };
  expect_refused(load_with("llama.block_count", 0u), "llama.block_count", "0");
  expect_refused(load_with("llama.block_count", 0u), "offset ", ": llama.block_count is 0; expected 1 to 1024");
  expect_refused(load_with("llama.block_count", 2000u), "llama.block_count", "2000");
  expect_refused(load_with("llama.block_count", 4000000000u), "llama.block_count", "4000000000");
  expect_refused(load_with("llama.attention.head_count_kv", 8u), "head_count_kv", "8");
  expect_refused(load_with("llama.attention.head_count_kv", 3u), "query heads", "3");
  expect_refused(load_with("llama.attention.key_length", 24u), "head", "24");
  expect_refused(load_with("llama.attention.value_length", 32u), "value heads", "32");
  expect_refused(load_with("llama.rope.dimension_count", 15u), "llama.rope.dimension_count", "15");
  expect_refused(load_with("llama.rope.dimension_count", 18u), "llama.rope.dimension_count", "18");
  expect_refused(load_with("llama.attention.layer_norm_rms_epsilon", 0.0f), "epsilon", "0");
  expect_refused(load_with("llama.rope.freq_base", 0.5f), "llama.rope.freq_base", "0.5");
  expect_refused(load_with("llama.rope.freq_base", NAN), "llama.rope.freq_base", "nan");
}

TEST(LlamaFamily, NamesAnUnknownFamilyAndTheKnownOnes) {
  const Status status = load_with("general.architecture", std::string("mamba"));
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("mamba"), HasSubstr("llama")));
  EXPECT_LT(load_with("general.architecture", std::string(60000, 'x')).message().size(), 300u);
}

TEST(LlamaFamily, RefusesRopeScalingItDoesNotCompute) {
  const Status status = load_with("llama.rope.scaling.type", std::string("dynamic"));
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("dynamic"), HasSubstr("yarn")));
  EXPECT_TRUE(load_with("llama.rope.scaling.type", std::string("none")));
}

TEST(LlamaFamily, RefusesMetadataOfTheWrongType) {
  EXPECT_EQ(load_with("llama.block_count", std::string("two")).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(load_with("general.architecture", 1u).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace headwater::testing
