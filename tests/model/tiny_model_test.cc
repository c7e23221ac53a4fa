// Every weight type from the file to the logits: tiny models through load_model() on the reference and on each cpu
// target.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "conformance/targets.h"
#include "model/model.h"
#include "support/compare.h"
#include "support/model_driver.h"
#include "support/tiny_model.h"

namespace headwater::testing {
namespace {

constexpr uint64_t kSeed = 20;
constexpr uint32_t kTokens = 75;  // three pages, chunks of 32

std::vector<TokenId> random_tokens(uint32_t vocabulary) {
  Random random(kSeed);
  std::vector<TokenId> tokens(kTokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(vocabulary));
  return tokens;
}

// Logits of every position, row after row.
Result<std::vector<float>> logits_of(std::span<const std::byte> image, ops::Backend& backend, DType kv_dtype,
                                     uint32_t chunk = 32) {
  HEADWATER_ASSIGN_OR_RETURN(model::GgufFile file, model::GgufFile::parse(image));
  const model::Checkpoint checkpoint(std::move(file));
  HEADWATER_ASSIGN_OR_RETURN(const auto model, model::load_model(checkpoint, backend));
  HEADWATER_ASSIGN_OR_RETURN(ModelDriver driver, ModelDriver::create(*model, backend, {kTokens, chunk, kv_dtype}));
  std::vector<float> all;
  HEADWATER_RETURN_IF_ERROR(driver.run(
      random_tokens(model->shape().vocabulary), 0,
      [&](uint32_t, std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); }));
  return all;
}

uint64_t mapped_bytes() {  // of this process
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(Decoder, GivesItsActivationsBackWhenItIsPreparedAgainAndWhenItGoes) {
  const std::vector<std::byte> image = TinyModel(TinyShape{}, DType::kF32).image(kSeed);
  const model::Checkpoint checkpoint(std::move(model::GgufFile::parse(image)).value());
  const ops::StepLimits limits{.sequences_max = 1,
                               .tokens_max = 1 << 16,
                               .pages_per_sequence_max = 1,
                               .page_size = 32,
                               .logits_max = 1 << 16,
                               .workers = 1};
  for (const char* name : {"reference", "cpu"}) {
    const auto backend = *backend::create_backend(name, {.threads = 1});
    const auto model = *model::load_model(checkpoint, *backend);
    const ops::KvShape kv = model->shape().kv_shape(32, 1, DType::kF32);
    ASSERT_TRUE((*model->create_decoder())->prepare(limits, kv));
    const uint64_t before = mapped_bytes();
    for (int i = 0; i < 3; ++i) {
      const auto decoder = *model->create_decoder();
      for (int j = 0; j < 3; ++j) ASSERT_TRUE(decoder->prepare(limits, kv));
      EXPECT_GT(mapped_bytes(), before + (uint64_t{50} << 20)) << name << ": nothing to give back";
    }
    EXPECT_LT(mapped_bytes(), before + (uint64_t{50} << 20)) << name;
  }
}

struct Case {
  DType weights;
  TinyShape shape;
};
const Case kCases[] = {
    {DType::kF32, {}},
    {DType::kF16, {.tied = false}},
    {DType::kBF16, {.embedding = 96, .head_dim = 32}},
    {DType::kQ8_0, {.embedding = 96, .kv_heads = 4, .head_dim = 32, .tied = false}},
    {DType::kQ8_0, {}},
    {DType::kQ4_0, {}},
    {DType::kQ4_1, {}},
    {DType::kQ4_1, {.layers = 3, .embedding = 96, .kv_heads = 1, .head_dim = 32}},
    {DType::kMXFP4, {.layers = 1}},
    {DType::kQ6_K, {.layers = 1, .embedding = 256, .feed_forward = 256, .head_dim = 64, .vocabulary = 40}},
};

// Logits have a deviation near 1. With f32 weights and f32 keys and values only the order of sums differs; weights of
// 16 bits may take one operand in bf16; quantised ones round activations to 8 bits in each of the 14 products on the
// way.
Tolerance logits_tolerance(DType weights) {
  switch (weights) {
    case DType::kF32:
      return {1e-4, 1e-4, 1 - 1e-8};
    case DType::kF16:
    case DType::kBF16:
      return {0.03, 0.03, 1 - 1e-4};
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      return {0.15, 0, 1 - 1e-3};
    default:  // decoded to f32
      return logits_tolerance(DType::kF32);
  }
}

class TinyModels : public TargetTest {};

TEST_P(TinyModels, OfEveryWeightTypeGiveTheReferencesLogits) {
  const auto reference = create_reference();
  for (const Case& one : kCases) {
    SCOPED_TRACE(fmt::format("{} weights, embedding {}, heads {}/{} x {}", to_string(one.weights), one.shape.embedding,
                             one.shape.q_heads, one.shape.kv_heads, one.shape.head_dim));
    const std::vector<std::byte> image = TinyModel(one.shape, one.weights).image(kSeed);
    const Result<std::vector<float>> want = logits_of(image, *reference, DType::kF32);
    ASSERT_TRUE(want) << want.status().message();
    ASSERT_EQ(want->size(), uint64_t{kTokens} * one.shape.vocabulary);
    const Result<std::vector<float>> got = logits_of(image, *backend_, DType::kF32);
    ASSERT_TRUE(got) << got.status().message();
    EXPECT_TRUE(near(*got, *want, logits_tolerance(one.weights), kSeed, "f32 keys and values"));
    const Result<std::vector<float>> got_bf16 = logits_of(image, *backend_, DType::kBF16);
    ASSERT_TRUE(got_bf16) << got_bf16.status().message();
    Tolerance tolerance = logits_tolerance(one.weights);
    tolerance.absolute += 0.05;
    tolerance.cosine_min -= 1e-3;
    EXPECT_TRUE(near(*got_bf16, *want, tolerance, kSeed, "bf16 keys and values"));
  }
}

TEST_P(TinyModels, GiveTheSameBitsHoweverThePromptIsCut) {
  for (const Case& one : kCases) {
    const std::vector<std::byte> image = TinyModel(one.shape, one.weights).image(kSeed);
    for (const DType kv_dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
      const Result<std::vector<float>> whole = logits_of(image, *backend_, kv_dtype, kTokens);
      ASSERT_TRUE(whole) << whole.status().message();
      for (const uint32_t chunk : {1u, 2u, 5u, 7u, 33u}) {
        const Result<std::vector<float>> cut = logits_of(image, *backend_, kv_dtype, chunk);
        ASSERT_TRUE(cut) << cut.status().message();
        EXPECT_TRUE(same_bits(*cut, *whole, kSeed,
                              fmt::format("{} weights, embedding {}, {} keys and values, chunks of {}",
                                          to_string(one.weights), one.shape.embedding, to_string(kv_dtype), chunk)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, TinyModels, ::testing::ValuesIn(targets_beside_the_reference()), target_name);

TEST(TinyModel, GivesOtherLogitsForOtherWeights) {
  const auto reference = create_reference();
  const Result<std::vector<float>> one = logits_of(TinyModel({}, DType::kF32).image(1), *reference, DType::kF32);
  const Result<std::vector<float>> other = logits_of(TinyModel({}, DType::kF32).image(2), *reference, DType::kF32);
  ASSERT_TRUE(one && other);
  EXPECT_FALSE(near(*one, *other, {0.15, 0, 1 - 1e-3}, kSeed));
}

}  // namespace
}  // namespace headwater::testing
