// embed, add_norm, gate_mul, cap_logits and gather_rows against the reference.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>

#include "conformance/matrices.h"
#include "conformance/targets.h"
#include "support/compare.h"
#include "support/quantize.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kColumns[] = {1, 7, 16, 33, 576, 1537};

class Elementwise : public TargetTest {
 protected:
  void SetUp() override {
    TargetTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    reference_ = create_reference();
    for (ops::Backend* backend : {backend_.get(), reference_.get()}) {
      EXPECT_TRUE(backend->reserve_scratch(kLimits, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, 64));
    }
    got_.emplace(*backend_);
    expected_.emplace(*reference_);
  }

  static constexpr ops::StepLimits kLimits{40, 40, 1, 16, 40};
  std::unique_ptr<ops::Backend> reference_;
  std::optional<BackendMemory> got_, expected_;
};

TEST_P(Elementwise, EmbedGivesTheRowsOfTheTableTimesTheScale) {
  float scale = 1;
  for (const DType dtype : weight_types()) {
    Random random(1);
    const uint32_t rows = 50, columns = block_elements(dtype) == 1 ? 77 : 3 * block_elements(dtype);
    const std::vector<std::byte> table = random_weight(dtype, rows * columns, 1.0f, random);
    const std::vector<TokenId> ids{0, 49, 7, 7, 31, 1};
    HostMatrix got(6, columns, 4), expected(6, columns);
    for (const auto& [memory, out] : {std::pair{&*got_, &got}, std::pair{&*expected_, &expected}}) {
      ops::Backend& backend = memory->backend();
      memory->clear();
      const ops::Matrix out_at = memory->put(*out);
      const Result<std::unique_ptr<ops::Weight>> weight = backend.prepare({table.data(), dtype, rows, columns});
      ASSERT_TRUE(weight) << weight.status().message();
      Result<ops::StepBlock> block = backend.create_step_block(kLimits);
      block->layout(1, 6, 0, 0);
      std::copy(ids.begin(), ids.end(), block->token_ids().begin());
      const Result<ops::DeviceBatch> batch = backend.begin_step(*block);
      backend.embed({batch->token_ids, weight->get(), out_at, scale});
      EXPECT_TRUE(backend.finish());
      memory->get(*out, out_at);
    }
    const Tolerance tolerance = rounds_to_bf16(dtype) ? Tolerance{1e-6, 4e-3, 1 - 1e-4} : tolerance_for(DType::kF32, 1);
    EXPECT_TRUE(near(got.values(), expected.values(), tolerance, 1, to_string(dtype)));
    EXPECT_TRUE(got.is_padding_untouched());
    scale *= -1.7f;
  }
}

TEST_P(Elementwise, AddNormUpdatesTheResidualAndNormsIt) {
  for (const uint32_t columns : kColumns) {
    for (const uint32_t rows : {1u, 5u, 33u}) {
      for (const bool has_delta : {false, true}) {
        Random random(columns + rows);
        HostMatrix residual(rows, columns, 3), delta(rows, columns, 1), got(rows, columns, 2), expected(rows, columns);
        residual.fill(random, 3);
        delta.fill(random);
        HostMatrix residual_expected = residual;
        std::vector<float> weight(columns);
        for (float& value : weight) value = 1 + 0.2f * random.normal();
        const auto run = [&](BackendMemory& memory, HostMatrix& residual_of, HostMatrix& out) {
          memory.clear();
          const ops::Matrix residual_at = memory.put(residual_of), out_at = memory.put(out);
          const ops::Matrix delta_at = has_delta ? memory.put(delta) : ops::Matrix{};
          memory.backend().add_norm({residual_at, delta_at, memory.put(weight), 1e-5f, out_at});
          EXPECT_TRUE(memory.backend().finish());
          memory.get(residual_of, residual_at);
          memory.get(out, out_at);
        };
        run(*got_, residual, got);
        run(*expected_, residual_expected, expected);
        const std::string what = fmt::format("[{}, {}]", rows, columns);
        EXPECT_TRUE(near(got.values(), expected.values(), tolerance_for(DType::kF32, columns), columns + rows, what));
        EXPECT_TRUE(same_bits(residual.values(), residual_expected.values(), columns + rows, what));
        EXPECT_TRUE(got.is_padding_untouched() && residual.is_padding_untouched());
      }
    }
  }
}

struct NormVectors {
  const std::vector<float>* weight;  // or null
  const std::vector<float>* behind;  // or null
  float epsilon, delta_scale;
};

void add_norm(BackendMemory& memory, HostMatrix& residual, const HostMatrix& delta, const NormVectors& vectors,
              HostMatrix& out) {
  memory.clear();
  const auto put = [&](const std::vector<float>* vector) { return vector == nullptr ? nullptr : memory.put(*vector); };
  const ops::Matrix residual_at = memory.put(residual), out_at = memory.put(out);
  memory.backend().add_norm({residual_at, memory.put(delta), put(vectors.weight), vectors.epsilon, out_at,
                             put(vectors.behind), vectors.delta_scale});
  EXPECT_TRUE(memory.backend().finish());
  memory.get(residual, residual_at);
  memory.get(out, out_at);
}

// Every combination of what may be left out.
TEST_P(Elementwise, AddNormWithANormBehindTheBlockAScaleOrNoNormAfterIt) {
  for (uint32_t i = 0; i < 4 * std::size(kColumns); ++i) {
    const uint32_t columns = kColumns[i / 4], rows = 1 + i % 7;
    const bool norms_delta = i % 2 == 0, norms_residual = i % 4 < 2;
    Random random(i);
    HostMatrix residual(rows, columns, 1), delta(rows, columns, 2), got(rows, columns, 3), expected(rows, columns);
    residual.fill(random, 3);
    delta.fill(random, 2);
    HostMatrix residual_expected = residual;
    std::vector<float> weight(columns), delta_weight(columns);
    for (float& value : weight) value = random.normal();
    for (float& value : delta_weight) value = random.normal();
    const NormVectors vectors{norms_residual ? &weight : nullptr, norms_delta ? &delta_weight : nullptr, 1e-3f, 0.22f};
    add_norm(*got_, residual, delta, vectors, got);
    add_norm(*expected_, residual_expected, delta, vectors, expected);
    const Tolerance tolerance = tolerance_for(DType::kF32, columns);
    EXPECT_TRUE(near(residual.values(), residual_expected.values(), tolerance, i, "residual"));
    EXPECT_TRUE(near(got.values(), expected.values(), tolerance, i, "out"));
    EXPECT_TRUE(norms_residual || same_bits(got.values(), residual.values(), i));
    EXPECT_TRUE(got.is_padding_untouched() && residual.is_padding_untouched());
  }
}

TEST_P(Elementwise, AddNormOfLongRowsThatLieSideBySide) {
  for (const uint32_t columns : {2048u, 4096u, 8192u, 12288u}) {
    Random random(columns);
    HostMatrix residual(3, columns), delta(3, columns), got(3, columns), expected(3, columns);
    residual.fill(random, 3);
    delta.fill(random);
    std::vector<float> weight(columns), behind(columns);
    for (float& value : weight) value = 1 + 0.2f * random.normal();
    for (float& value : behind) value = 1 + 0.2f * random.normal();
    HostMatrix residual_expected = residual;
    const NormVectors vectors{&weight, &behind, 1e-5f, 0.5f};
    add_norm(*got_, residual, delta, vectors, got);
    add_norm(*expected_, residual_expected, delta, vectors, expected);
    const Tolerance tolerance = tolerance_for(DType::kF32, columns);
    EXPECT_TRUE(near(residual.values(), residual_expected.values(), tolerance, columns, "residual"));
    EXPECT_TRUE(near(got.values(), expected.values(), tolerance, columns, "norm"));
  }
}

TEST_P(Elementwise, AddNormWithNeitherDeltaNorWeightCopiesTheResidual) {
  Random random(3);
  HostMatrix residual(3, 50, 1), out(3, 50);
  const std::vector<float> before = residual.fill(random).values();
  const ops::Matrix out_at = got_->put(out);
  backend_->add_norm({got_->put(residual), {}, nullptr, 1e-5f, out_at});
  EXPECT_TRUE(backend_->finish());
  got_->get(out, out_at);
  EXPECT_TRUE(same_bits(out.values(), before, 3));
}

TEST_P(Elementwise, AddNormOfZerosIsZero) {
  HostMatrix residual(2, 48), out(2, 48);
  residual.fill(0);
  const std::vector<float> weight(48, 1.0f);
  const ops::Matrix out_at = got_->put(out);
  backend_->add_norm({got_->put(residual), {}, got_->put(weight), 1e-5f, out_at});
  EXPECT_TRUE(backend_->finish());
  got_->get(out, out_at);
  EXPECT_EQ(out.values(), std::vector<float>(2 * 48, 0.0f));
}

constexpr ops::Activation kActivations[] = {ops::Activation::kSilu, ops::Activation::kGeluTanh,
                                            ops::Activation::kSwigluClamped};

TEST_P(Elementwise, EveryActivationInPlaceAndFarFromZero) {
  for (const ops::Activation activation : kActivations) {
    for (const uint32_t columns : kColumns) {
      for (const bool in_place : {false, true}) {
        Random random(columns);
        HostMatrix gate(5, columns, 2), up(5, columns, 1), got(5, columns, 7), expected(5, columns);
        gate.fill(random, 4);
        up.fill(random, 4);
        for (uint32_t i = 0; i < std::min(4u, columns); ++i) {  // where exp overflows or vanishes in f32
          gate.row(0)[i] = std::array{100.0f, -100.0f, 1e30f, -1e30f}[i];
        }
        const auto run = [&](BackendMemory& memory, bool is_in_place, HostMatrix& to) {
          memory.clear();
          const ops::Matrix gate_at = memory.put(gate), out_at = is_in_place ? gate_at : memory.put(to);
          memory.backend().gate_mul({gate_at, memory.put(up), out_at, activation});
          EXPECT_TRUE(memory.backend().finish());
          memory.get(to, out_at);
        };
        run(*expected_, false, expected);
        HostMatrix& out = in_place ? gate : got;
        run(*got_, in_place, out);
        EXPECT_TRUE(near(out.values(), expected.values(), tolerance_for(DType::kF32, 1), columns,
                         fmt::format("activation {}", static_cast<int>(activation))));
        EXPECT_TRUE(out.is_padding_untouched());
      }
    }
  }
}

TEST_P(Elementwise, AnActivationOfNotANumberIsNotANumber) {
  for (const ops::Activation activation : kActivations) {
    HostMatrix gate(2, 37), up(2, 37), out(2, 37);
    gate.fill(1);
    up.fill(1);
    gate.row(0)[3] = up.row(1)[36] = std::numeric_limits<float>::quiet_NaN();
    const ops::Matrix out_at = got_->put(out);
    backend_->gate_mul({got_->put(gate), got_->put(up), out_at, activation});
    EXPECT_TRUE(backend_->finish());
    got_->get(out, out_at);
    for (uint32_t i = 0; i < 37; ++i) {
      EXPECT_EQ(std::isnan(out.row(0)[i]), i == 3);
      EXPECT_EQ(std::isnan(out.row(1)[i]), i == 36);
    }
  }
}

// The place of a value in its row, and the row in the matrix, do not change its bits.
TEST_P(Elementwise, AnActivationHasTheSameBitsBesideAnyNeighbours) {
  for (const ops::Activation activation : kActivations) {
    Random random(5);
    HostMatrix gate(30, 45), up(30, 45), out(30, 45);
    gate.fill(random, 3);
    up.fill(random);
    for (uint32_t t = 0; t < 30; ++t) {
      gate.row(t)[(7 * t) % 45] = 1.25f;
      up.row(t)[(7 * t) % 45] = -0.7f;
    }
    const ops::Matrix out_at = got_->put(out);
    backend_->gate_mul({got_->put(gate), got_->put(up), out_at, activation});
    EXPECT_TRUE(backend_->finish());
    got_->get(out, out_at);
    for (uint32_t t = 1; t < 30; ++t) EXPECT_EQ(out.row(t)[(7 * t) % 45], out.row(0)[0]) << t;
  }
}

TEST_P(Elementwise, CapLogitsScalesAndThenBends) {
  for (const uint32_t columns : kColumns) {
    for (const auto& [scale, softcap] : {std::pair{1.0f, 0.0f}, {1.0f, 30.0f}, {0.125f, 0.0f}, {0.5f, 20.0f}}) {
      Random random(columns);
      HostMatrix logits(4, columns, 3);
      logits.fill(random, 40);
      logits.row(0)[0] = -std::numeric_limits<float>::infinity();
      HostMatrix expected = logits;
      const auto run = [scale = scale, softcap = softcap](BackendMemory& memory, HostMatrix& in_place) {
        memory.clear();
        const ops::Matrix at = memory.put(in_place);
        memory.backend().cap_logits({at, scale, softcap});
        EXPECT_TRUE(memory.backend().finish());
        memory.get(in_place, at);
      };
      run(*got_, logits);
      run(*expected_, expected);
      EXPECT_TRUE(near(logits.values(), expected.values(), tolerance_for(DType::kF32, 1), columns,
                       fmt::format("scale {}, softcap {}", scale, softcap)));
      EXPECT_TRUE(logits.is_padding_untouched());
    }
  }
}

TEST_P(Elementwise, GatherRowsTakesRowsInTheOrderAsked) {
  Random random(4);
  HostMatrix in(9, 131, 5), out(4, 131, 3);
  in.fill(random);
  const std::vector<uint32_t> rows{8, 0, 3, 3};
  Result<ops::StepBlock> block = backend_->create_step_block(kLimits);
  block->layout(1, 9, 4, 0);
  std::copy(rows.begin(), rows.end(), block->logits_tokens().begin());
  const ops::Matrix in_at = got_->put(in), out_at = got_->put(out);
  const Result<ops::DeviceBatch> batch = backend_->begin_step(*block);
  backend_->gather_rows({in_at, batch->logits_tokens, out_at});
  EXPECT_TRUE(backend_->finish());
  got_->get(out, out_at);
  std::vector<float> expected;
  for (const uint32_t row : rows) expected.insert(expected.end(), in.row(row), in.row(row) + 131);
  EXPECT_TRUE(same_bits(out.values(), expected, 4));
  EXPECT_TRUE(out.is_padding_untouched());
}

INSTANTIATE_TEST_SUITE_P(Targets, Elementwise, ::testing::ValuesIn(targets_beside_the_reference()), target_name);

}  // namespace
}  // namespace headwater::testing
