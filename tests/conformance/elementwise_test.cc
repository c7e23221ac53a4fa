// embed, add_norm, silu_mul and gather_rows against the reference.
#include <gtest/gtest.h>

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
    reference_ = create_reference();
    for (ops::Backend* backend : {backend_.get(), reference_.get()}) {
      EXPECT_TRUE(backend->reserve_scratch({40, 40, 1, 16, 40}, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, 64));
    }
  }
  std::unique_ptr<ops::Backend> reference_;
};

TEST_P(Elementwise, EmbedGivesTheRowsOfTheTable) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_0}) {
    Random random(1);
    const uint32_t rows = 50, columns = block_elements(dtype) == 1 ? 77 : 96;
    std::vector<float> values(rows * columns);
    for (float& value : values) value = random.normal();
    const std::vector<std::byte> table = quantize(dtype, values);
    const std::vector<TokenId> ids{0, 49, 7, 7, 31, 1};
    HostMatrix got(6, columns, 4), expected(6, columns);
    for (const auto& [backend, out] :
         {std::pair{backend_.get(), got.view()}, std::pair{reference_.get(), expected.view()}}) {
      const Result<std::unique_ptr<ops::Weight>> weight = backend->prepare({table.data(), dtype, rows, columns});
      ASSERT_TRUE(weight) << weight.status().message();
      backend->embed({ids, weight->get(), out});
      EXPECT_TRUE(backend->finish());
    }
    EXPECT_TRUE(near(got.values(), expected.values(), tolerance_for(DType::kF32, 1), 1, to_string(dtype)));
    EXPECT_TRUE(got.is_padding_untouched());
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
        const ops::Matrix no_delta{};
        backend_->add_norm({residual.view(), has_delta ? delta.view() : no_delta, weight.data(), 1e-5f, got.view()});
        reference_->add_norm(
            {residual_expected.view(), has_delta ? delta.view() : no_delta, weight.data(), 1e-5f, expected.view()});
        EXPECT_TRUE(backend_->finish());
        const std::string what = fmt::format("[{}, {}]", rows, columns);
        EXPECT_TRUE(near(got.values(), expected.values(), tolerance_for(DType::kF32, columns), columns + rows, what));
        EXPECT_TRUE(same_bits(residual.values(), residual_expected.values(), columns + rows, what));
        EXPECT_TRUE(got.is_padding_untouched() && residual.is_padding_untouched());
      }
    }
  }
}

TEST_P(Elementwise, AddNormOfZerosIsZero) {
  HostMatrix residual(2, 48), out(2, 48);
  std::fill_n(residual.view().data, 2 * 48, 0.0f);
  const std::vector<float> weight(48, 1.0f);
  backend_->add_norm({residual.view(), {}, weight.data(), 1e-5f, out.view()});
  EXPECT_TRUE(backend_->finish());
  EXPECT_EQ(out.values(), std::vector<float>(2 * 48, 0.0f));
}

TEST_P(Elementwise, SiluMulInPlaceAndFarFromZero) {
  for (const uint32_t columns : kColumns) {
    for (const bool in_place : {false, true}) {
      Random random(columns);
      HostMatrix gate(5, columns, 2), up(5, columns, 1), got(5, columns, 7), expected(5, columns);
      gate.fill(random, 4);
      up.fill(random);
      gate.view().data[0] = 100;  // where exp overflows or vanishes in f32
      if (columns > 1) gate.view().data[1] = -100;
      reference_->silu_mul({gate.view(), up.view(), expected.view()});
      backend_->silu_mul({gate.view(), up.view(), in_place ? gate.view() : got.view()});
      EXPECT_TRUE(backend_->finish());
      HostMatrix& out = in_place ? gate : got;
      EXPECT_TRUE(near(out.values(), expected.values(), tolerance_for(DType::kF32, 1), columns));
      EXPECT_TRUE(out.is_padding_untouched());
    }
  }
}

TEST_P(Elementwise, GatherRowsTakesRowsInTheOrderAsked) {
  Random random(4);
  HostMatrix in(9, 131, 5), out(4, 131, 3);
  in.fill(random);
  const std::vector<uint32_t> rows{8, 0, 3, 3};
  backend_->gather_rows({in.view(), rows, out.view()});
  EXPECT_TRUE(backend_->finish());
  std::vector<float> expected;
  for (const uint32_t row : rows) expected.insert(expected.end(), in.view().row(row), in.view().row(row) + 131);
  EXPECT_TRUE(same_bits(out.values(), expected, 4));
  EXPECT_TRUE(out.is_padding_untouched());
}

INSTANTIATE_TEST_SUITE_P(Targets, Elementwise, ::testing::ValuesIn(targets_beside_the_reference()), target_name);

}  // namespace
}  // namespace headwater::testing
