// Results worked out by hand or by the textbook formula. Attention is held against naive attention in
// tests/conformance.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/reference/pool.h"
#include "backend/reference/reference_backend.h"

namespace headwater::backend::reference {
namespace {

class Reference : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<ops::Backend>> created = create({.threads = 2});
    ASSERT_TRUE(created);
    backend_ = std::move(created).value();
  }
  static ops::Matrix matrix(std::vector<float>& data, uint32_t rows) {
    const auto columns = static_cast<uint32_t>(data.size() / rows);
    return {data.data(), rows, columns, columns};
  }
  static ops::WeightView view(const std::vector<float>& data, uint64_t rows) {
    return {reinterpret_cast<const std::byte*>(data.data()), DType::kF32, rows, data.size() / rows};
  }
  std::unique_ptr<ops::Backend> backend_;
};

TEST_F(Reference, MatmulMultipliesByTheTransposeAndAddsTheBias) {
  std::vector<float> x{1, 2, 3, -1, 0, 1}, out(4);
  const std::vector<float> weight{1, 1, 1, 2, 0, -2}, bias{10, 20};
  const auto prepared = backend_->prepare(view(weight, 2));
  const ops::Product product{prepared->get(), matrix(out, 2), bias.data()};
  backend_->matmul({matrix(x, 2), {&product, 1}});
  EXPECT_EQ(out, std::vector<float>({16, 16, 10, 16}));
}

TEST_F(Reference, MatmulGivesTheSameBitsWithOneThreadAndWithThree) {
  Random random(1);
  std::vector<float> x(8 * 512), weight(300 * 512);
  for (float& value : x) value = random.normal();
  for (float& value : weight) value = random.normal();
  std::vector<std::vector<float>> outs;
  for (const uint32_t threads : {1u, 3u}) {
    const auto backend = create({.threads = threads});
    const auto prepared = (*backend)->prepare(view(weight, 300));
    std::vector<float>& out = outs.emplace_back(8 * 300);
    const ops::Product product{prepared->get(), matrix(out, 8)};
    (*backend)->matmul({matrix(x, 8), {&product, 1}});
  }
  EXPECT_EQ(outs[0], outs[1]);
}

TEST_F(Reference, EmbedLooksRowsUp) {
  const std::vector<float> table{1, 2, 3, 4, 5, 6};
  const std::vector<TokenId> ids{2, 0};
  std::vector<float> out(4);
  const auto prepared = backend_->prepare(view(table, 3));
  backend_->embed({ids, prepared->get(), matrix(out, 2)});
  EXPECT_EQ(out, std::vector<float>({5, 6, 1, 2}));
}

TEST_F(Reference, AddNormDividesByTheRootMeanSquare) {
  std::vector<float> residual{1, 3}, delta{2, 1}, out(2);
  const std::vector<float> weight{1, 10};
  backend_->add_norm({matrix(residual, 1), matrix(delta, 1), weight.data(), 0, matrix(out, 1)});
  EXPECT_EQ(residual, std::vector<float>({3, 4}));
  EXPECT_FLOAT_EQ(out[0], 3 / std::sqrt(12.5f));
  EXPECT_FLOAT_EQ(out[1], 40 / std::sqrt(12.5f));
}

TEST_F(Reference, AddNormNormsTheDeltaFirstWhereItHasAWeight) {
  std::vector<float> residual{1, 3}, delta{3, 4}, out(2);
  const std::vector<float> delta_weight{2, 10};
  const float root = std::sqrt(12.5f);
  backend_->add_norm({matrix(residual, 1), matrix(delta, 1), nullptr, 0, matrix(out, 1), delta_weight.data(), 0.5f});
  EXPECT_FLOAT_EQ(residual[0], 1 + 0.5f * 3 / root * 2);
  EXPECT_FLOAT_EQ(residual[1], 3 + 0.5f * 4 / root * 10);
  EXPECT_EQ(out, residual);  // no weight, no norm
}

TEST_F(Reference, ActivationsFollowTheirFormulas) {
  const std::vector<float> gates{-9, -1, 0, 0.5f, 3, 6.5f, 8, 1000}, ups{3, -2, 5, 1, -9, 7.5f, -0.5f, 1};
  std::vector<float> gate = gates, up = ups, out(gates.size());
  const auto run = [&](ops::Activation activation) {
    backend_->gate_mul({matrix(gate, 1), matrix(up, 1), matrix(out, 1), activation});
  };
  run(ops::Activation::kGeluTanh);
  for (size_t i = 0; i < gates.size(); ++i) {
    const double x = gates[i], inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3));
    EXPECT_FLOAT_EQ(out[i], static_cast<float>(0.5 * x * (1 + std::tanh(inner)) * ups[i])) << gates[i];
  }
  run(ops::Activation::kSwigluClamped);
  for (size_t i = 0; i < gates.size(); ++i) {
    const double x = std::min(gates[i], 7.0f), y = std::clamp(ups[i], -7.0f, 7.0f);
    EXPECT_FLOAT_EQ(out[i], static_cast<float>(x * (1 / (1 + std::exp(-1.702 * x))) * (y + 1))) << gates[i];
  }
}

TEST_F(Reference, CapLogitsScalesAndThenBends) {
  const std::vector<float> before{-100, -1, 0, 2, 1e30f};
  std::vector<float> logits = before;
  backend_->cap_logits({matrix(logits, 1), 0.5f});
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(logits[i], 0.5f * before[i]);
  logits = before;
  backend_->cap_logits({matrix(logits, 1), 0.5f, 30});
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_FLOAT_EQ(logits[i], static_cast<float>(30 * std::tanh(0.5 * before[i] / 30)));
  }
}

TEST_F(Reference, SiluMulIsXTimesItsSigmoidTimesUp) {
  std::vector<float> gate{0, 1, -1000, 1000}, up{5, 2, 3, 1}, out(4);
  backend_->gate_mul({matrix(gate, 1), matrix(up, 1), matrix(out, 1)});
  EXPECT_FLOAT_EQ(out[1], 2 / (1 + std::exp(-1.0f)));
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 1000);
}

// One token, as rope_append() reads it.
struct TokenBatch : ops::DeviceBatch {
  TokenBatch(uint32_t position, PageId page, uint32_t slot) : position_(position), page_(page), slot_(slot) {
    tokens = 1;
    positions = {&position_, 1};
    append_pages = {&page_, 1};
    append_slots = {&slot_, 1};
  }
  TokenBatch(const TokenBatch&) = delete;

 private:
  uint32_t position_;
  PageId page_;
  uint32_t slot_;
};

TEST_F(Reference, RopeTurnsPairsByPositionTimesFrequencyInBothStyles) {
  const ops::KvShape shape{1, 1, 6, 2, 4, 2, DType::kF32};
  auto pool = backend_->create_kv_pool(shape);
  const std::vector<float> frequencies{0.5f, 0.25f};
  const float c0 = std::cos(1.5f), s0 = std::sin(1.5f), c1 = std::cos(0.75f), s1 = std::sin(0.75f);
  const TokenBatch batch(3, 1, 2);
  struct {
    ops::RopeStyle style;
    std::vector<float> rotated;
  } const cases[] = {
      {ops::RopeStyle::kAdjacentPairs, {c0 - 2 * s0, s0 + 2 * c0, 3 * c1 - 4 * s1, 3 * s1 + 4 * c1, 5, 6}},
      {ops::RopeStyle::kHalves, {c0 - 3 * s0, 2 * c1 - 4 * s1, s0 + 3 * c0, 2 * s1 + 4 * c1, 5, 6}}};
  for (const auto& [style, rotated] : cases) {
    std::vector<float> q{1, 2, 3, 4, 5, 6}, k = q, v{7, 8}, loaded(6);
    backend_->rope_append(
        {matrix(q, 1), matrix(k, 1), matrix(v, 1), &batch, {style, 4, frequencies.data()}, pool->get(), 0});
    static_cast<const Pool&>(**pool).load_keys({0, 1, 0, 2}, 1, loaded.data());
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(q[i], rotated[i], 1e-6);
      EXPECT_EQ(loaded[i], q[i]);
    }
    EXPECT_EQ(k, std::vector<float>({1, 2, 3, 4, 5, 6}));
    loaded.resize(2);
    static_cast<const Pool&>(**pool).load_values({0, 1, 0, 2}, 1, loaded.data());
    EXPECT_EQ(loaded, v);
  }
}

TEST_F(Reference, ARowNormTakesTheMeanOverAllHeadsAndTheScaleGrowsWhatIsRotated) {
  const ops::KvShape shape{1, 2, 2, 2, 4, 2, DType::kF32};
  auto pool = backend_->create_kv_pool(shape);
  const std::vector<float> frequencies{1}, norm{1, 2, 3, 4};
  const TokenBatch batch(0, 1, 0);
  std::vector<float> q{1, 2, 3, 4}, k{2, 2, 2, 2}, v(4), loaded(2);
  backend_->rope_append({matrix(q, 1),
                         matrix(k, 1),
                         matrix(v, 1),
                         &batch,
                         {ops::RopeStyle::kHalves, 2, frequencies.data(), 3.0f},
                         pool->get(),
                         0,
                         norm.data(),
                         norm.data(),
                         0,
                         ops::NormSpan::kRow});
  const float root = std::sqrt((1 + 4 + 9 + 16) / 4.0f);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(q[i], 3 * static_cast<float>(i + 1) / root * norm[i]);
    static_cast<const Pool&>(**pool).load_keys({0, 1, static_cast<uint32_t>(i / 2), 0}, 1, loaded.data());
    EXPECT_FLOAT_EQ(loaded[i % 2], 3 * norm[i]);
  }
}

TEST_F(Reference, CopyPagesCopiesAllLayers) {
  auto created = Pool::create({2, 2, 3, 5, 4, 3, DType::kF32});
  Pool& pool = **created;
  const std::vector<float> key{1, 2, 3}, value{4, 5, 6, 7, 8};
  for (const uint32_t layer : {0u, 1u}) {
    pool.store_key({layer, 0, 1, 3}, key.data());
    pool.store_value({layer, 0, 1, 3}, value.data());
  }
  const std::vector<PageId> from{0}, to{2};
  backend_->copy_pages(pool, from, to);
  for (const uint32_t layer : {0u, 1u}) {
    std::vector<float> loaded(3);
    pool.load_keys({layer, 2, 1, 3}, 1, loaded.data());
    EXPECT_EQ(loaded, key);
    loaded.resize(5);
    pool.load_values({layer, 2, 1, 3}, 1, loaded.data());
    EXPECT_EQ(loaded, value);
  }
}

TEST_F(Reference, RefusesWhatItCannotDo) {
  EXPECT_EQ(create({.cpu_target = "avx2"}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(backend_->create_kv_pool({1, 1, 64, 64, 16, 4, DType::kQ8_0}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(backend_->create_kv_pool({1, 0, 64, 64, 16, 4, DType::kF32}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(backend_->prepare({nullptr, DType::kQ4_1, 1, 40}).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace headwater::backend::reference
