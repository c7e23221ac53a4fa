#include "backend/cpu/rowwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/dense_test_kit.h"

namespace headwater::backend::cpu {
namespace {

class RowwiseOf : public ::testing::TestWithParam<Target> {
 protected:
  std::unique_ptr<ThreadPool> pool_ = std::move(ThreadPool::create(2)).value();
  Rowwise rowwise_{step_kernels(GetParam()), *pool_};
};

TEST_P(RowwiseOf, AddNormAgreesWithDoubleAndUpdatesTheResidual) {
  for (const uint32_t columns : {1u, 17u, 576u}) {
    constexpr uint32_t kRows = 40;
    const std::vector<float> before = random_values(kRows * columns, 1), weight = random_values(columns, 3);
    std::vector<float> delta = random_values(kRows * columns, 2);
    for (const bool with_delta : {true, false}) {
      std::vector<float> residual = before, out(kRows * columns);
      const ops::Matrix delta_matrix{with_delta ? delta.data() : nullptr, kRows, columns, columns};
      rowwise_.add_norm({{residual.data(), kRows, columns, columns},
                         delta_matrix,
                         weight.data(),
                         1e-5f,
                         {out.data(), kRows, columns, columns}});
      for (uint32_t r = 0; r < kRows; ++r) {
        double squares = 0;
        for (uint32_t k = 0; k < columns; ++k) {
          const float sum = with_delta ? before[r * columns + k] + delta[r * columns + k] : before[r * columns + k];
          ASSERT_EQ(residual[r * columns + k], sum);
          squares += double{sum} * sum;
        }
        for (uint32_t k = 0; k < columns; ++k) {
          const double expected = residual[r * columns + k] / std::sqrt(squares / columns + 1e-5) * weight[k];
          ASSERT_NEAR(out[r * columns + k], expected, 1e-6 * (std::fabs(expected) + 1e-6));
        }
      }
    }
  }
}

TEST_P(RowwiseOf, SiluMulAgreesWithDoubleAndMayWriteOverTheGate) {
  constexpr uint32_t kRows = 9, kColumns = 1531;
  std::vector<float> gate = random_values(kRows * kColumns, 1), up = random_values(kRows * kColumns, 2);
  for (float& value : gate) value *= 20;
  gate[0] = -200.0f;
  gate[1] = 200.0f;
  const std::vector<float> before = gate;
  const ops::Matrix in_place{gate.data(), kRows, kColumns, kColumns};
  rowwise_.gate_mul({in_place, {up.data(), kRows, kColumns, kColumns}, in_place});
  for (size_t i = 0; i < gate.size(); ++i) {
    const double expected = before[i] / (1 + std::exp(-double{before[i]})) * up[i];
    ASSERT_NEAR(gate[i], expected, 4e-6 * std::fabs(expected) + 1e-30) << before[i];
  }
}

TEST_P(RowwiseOf, EmbedGivesTheFilesValues) {
  const FileWeight file(DType::kQ8_0, 50, 576, 2);
  const auto table = std::move(pack(file.view, *pool_)).value();
  const std::vector<TokenId> tokens = {49, 0, 7, 7, 31, 16, 15, 48, 3, 2, 1, 11, 12, 13, 14, 40};
  std::vector<float> out(tokens.size() * 600, -1.0f);
  rowwise_.embed({tokens, table.get(), {out.data(), static_cast<uint32_t>(tokens.size()), 576, 600}});
  for (size_t i = 0; i < tokens.size(); ++i) {
    const float* expected = &file.values[static_cast<size_t>(tokens[i]) * 576];
    ASSERT_EQ(std::memcmp(&out[i * 600], expected, 576 * sizeof(float)), 0) << tokens[i];
    ASSERT_EQ(out[i * 600 + 576], -1.0f);
  }
}

TEST_P(RowwiseOf, GatherRowsCopiesRowsInTheOrderAsked) {
  std::vector<float> in = random_values(6 * 20, 1), out(3 * 20);
  const std::vector<uint32_t> rows = {5, 0, 5};
  rowwise_.gather_rows({{in.data(), 6, 20, 20}, rows, {out.data(), 3, 20, 20}});
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(std::memcmp(&out[i * 20], &in[rows[i] * 20], 20 * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowwiseOf, ::testing::ValuesIn(available_targets()),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace headwater::backend::cpu
