// Models whose weights are made up: what a config.json asks for is there and computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "backend/registry/registry.h"
#include "model/model.h"
#include "support/model_driver.h"

namespace headwater::testing {
namespace {

using ::testing::HasSubstr;

class RandomWeights : public ::testing::Test {
 protected:
  RandomWeights() : path_(fmt::format("{}/headwater_random_weights_{}", ::testing::TempDir(), getpid())) {
    std::filesystem::create_directories(path_);
    write(R"({"model_type": "llama", "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2,
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300,
              "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
  }
  ~RandomWeights() override { std::filesystem::remove_all(path_); }
  void write(std::string_view config) const { std::ofstream(path_ + "/config.json") << config; }

  const std::string path_;
};

TEST_F(RandomWeights, ComputeFiniteLogitsThatDependOnTheTokens) {
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    SCOPED_TRACE(to_string(dtype));
    const Result<model::Checkpoint> checkpoint = model::open_with_random_weights(path_, dtype);
    ASSERT_TRUE(checkpoint) << checkpoint.status().message();
    EXPECT_EQ(checkpoint->find("model.layers.1.mlp.down_proj.weight")->dtype, dtype);
    EXPECT_EQ(checkpoint->find("model.norm.weight")->dtype, DType::kF32);
    const auto backend = backend::create_backend("cpu", {.threads = 1}).value();
    const Result<std::unique_ptr<model::Model>> model = model::load_model(*checkpoint, *backend);
    ASSERT_TRUE(model) << model.status().message();
    Result<ModelDriver> driver = ModelDriver::create(**model, *backend, {.tokens_max = 16, .chunk = 16});
    ASSERT_TRUE(driver) << driver.status().message();
    std::vector<float> greatest;
    const std::vector<TokenId> tokens{1, 2, 3, 299};
    EXPECT_TRUE(driver->run(tokens, 0, [&](uint32_t, std::span<const float> logits) {
      for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
      greatest.push_back(*std::ranges::max_element(logits));
    }));
    ASSERT_EQ(greatest.size(), 4u);
    EXPECT_NE(greatest[0], greatest[1]);
  }
}

TEST_F(RandomWeights, RowsThatAreNoWholeBlocksAreOfBf16) {
  write(R"({"model_type": "llama", "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 3, "num_key_value_heads": 1, "vocab_size": 50, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5})");
  const Result<model::Checkpoint> checkpoint = model::open_with_random_weights(path_, DType::kQ8_0);
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->find("model.layers.0.mlp.gate_proj.weight")->dtype, DType::kBF16);
  EXPECT_EQ(checkpoint->find("model.layers.0.mlp.down_proj.weight")->dtype, DType::kQ8_0);
  EXPECT_TRUE(model::check_tensors(*checkpoint));
}

TEST_F(RandomWeights, AreNotMadeOfEveryTypeNorForAFolderWithoutAConfig) {
  EXPECT_THAT(model::open_with_random_weights(path_, DType::kQ6_K).status().message(), HasSubstr("Q6_K"));
  std::filesystem::remove(path_ + "/config.json");
  EXPECT_THAT(model::open_with_random_weights(path_, DType::kBF16).status().message(), HasSubstr("config.json"));
}

}  // namespace
}  // namespace headwater::testing
