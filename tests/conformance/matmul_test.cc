#include <gtest/gtest.h>

#include <cmath>

#include "conformance/matrices.h"
#include "conformance/targets.h"
#include "support/compare.h"
#include "support/quantize.h"

namespace headwater::testing {
namespace {

const std::vector<DType> kWeightTypes = weight_types();

// Rows of norm near 1, so that the products of normal inputs have a deviation near 1.
std::vector<std::byte> random_rows(DType dtype, uint32_t rows, uint32_t columns, Random& random) {
  return random_weight(dtype, uint64_t{rows} * columns, 1 / std::sqrt(static_cast<float>(columns)), random);
}

class Matmul : public TargetTest {
 protected:
  std::unique_ptr<ops::Weight> prepare(ops::Backend& backend, const ops::WeightView& view) {
    Result<std::unique_ptr<ops::Weight>> weight = backend.prepare(view);
    EXPECT_TRUE(weight) << weight.status().message();
    return std::move(weight).value();
  }
  void reserve(ops::Backend& backend, uint32_t tokens) {
    const ops::StepLimits limits{tokens, tokens, 1, 16, tokens};
    EXPECT_TRUE(backend.reserve_scratch(limits, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, 64));
  }
  // What `enqueue` makes of x on a back end; it returns what has to live until that is there.
  template <typename Enqueue>
  void run(BackendMemory& on, HostMatrix& x, HostMatrix& to, const Enqueue& enqueue) {
    reserve(on.backend(), x.rows());
    on.clear();
    const ops::Matrix x_at = on.put(x), to_at = on.put(to);
    [[maybe_unused]] const auto kept = enqueue(on, x_at, to_at);
    EXPECT_TRUE(on.backend().finish());
    on.get(to, to_at);
  }
  static std::vector<float> random_bias(uint32_t n, Random& random) {
    std::vector<float> bias(n);
    for (float& value : bias) value = random.normal();
    return bias;
  }
};

TEST_P(Matmul, EveryWeightTypeAndOddShape) {
  const std::unique_ptr<ops::Backend> reference = create_reference();
  BackendMemory memory(*backend_), memory_of_reference(*reference);
  for (const DType dtype : kWeightTypes) {
    for (uint32_t i = 0; i < 24 / kSlowdown; ++i) {
      const uint64_t seed = 100 + i;
      Random random(seed);
      const uint32_t tokens = i < 4 ? 1 + i : random.between(1, 33);
      const uint32_t n = i == 0 ? 1 : random.between(1, 150);
      const uint32_t k = block_elements(dtype) == 1    ? random.between(1, 700)
                         : block_elements(dtype) == 32 ? 32 * random.between(1, 20)
                                                       : 256 * random.between(1, 3);
      const std::vector<std::byte> data = random_rows(dtype, n, k, random);
      HostMatrix x(tokens, k, 5), out(tokens, n, 3), expected(tokens, n);
      x.fill(random);
      const std::vector<float> bias = random_bias(n, random);
      const auto enqueue = [&](BackendMemory& on, const ops::Matrix& x_at, const ops::Matrix& to_at) {
        std::vector<std::byte> view = data;
        std::unique_ptr<ops::Weight> weight = prepare(on.backend(), {view.data(), dtype, n, k});
        if (on.backend().info().copies_weights) std::ranges::fill(view, std::byte{0xff});
        const ops::Product product{weight.get(), to_at, i % 2 == 0 ? on.put(bias) : nullptr};
        on.backend().matmul({x_at, {&product, 1}});
        return std::pair{std::move(view), std::move(weight)};
      };
      run(memory, x, out, enqueue);
      run(memory_of_reference, x, expected, enqueue);
      EXPECT_TRUE(near(out.values(), expected.values(), product_tolerance(dtype, k), seed,
                       fmt::format("{} [{}, {}] x {}", to_string(dtype), n, k, tokens)));
      EXPECT_TRUE(out.is_padding_untouched());
    }
  }
}

TEST_P(Matmul, SeveralWeightsReadTheSameX) {
  Random random(7);
  const std::unique_ptr<ops::Backend> reference = create_reference();
  const uint32_t tokens = 9, k = 256;
  HostMatrix x(tokens, k);
  x.fill(random);
  std::vector<std::vector<std::byte>> data;
  std::vector<HostMatrix> got, expected;
  for (const DType dtype : kWeightTypes) {
    data.push_back(random_rows(dtype, 40, k, random));
    got.emplace_back(tokens, 40);
    expected.emplace_back(tokens, 40);
  }
  const auto run = [&](ops::Backend& backend, std::vector<HostMatrix>& outs) {
    reserve(backend, tokens);
    BackendMemory memory(backend);
    std::vector<std::unique_ptr<ops::Weight>> weights;
    std::vector<ops::Product> products;
    for (size_t i = 0; i < data.size(); ++i) {
      weights.push_back(prepare(backend, {data[i].data(), kWeightTypes[i], 40, k}));
      products.push_back({weights.back().get(), memory.put(outs[i])});
    }
    backend.matmul({memory.put(x), products});
    EXPECT_TRUE(backend.finish());
    for (size_t i = 0; i < data.size(); ++i) memory.get(outs[i], products[i].out);
  };
  run(*backend_, got);
  run(*reference, expected);
  for (size_t i = 0; i < data.size(); ++i) {
    EXPECT_TRUE(near(got[i].values(), expected[i].values(), product_tolerance(kWeightTypes[i], k), 7,
                     to_string(kWeightTypes[i])));
  }
}

TEST_P(Matmul, AGatedProductIsBothProductsAndTheirGate) {
  const std::unique_ptr<ops::Backend> reference = create_reference();
  BackendMemory memory(*backend_), memory_of_reference(*reference);
  for (const DType dtype : kWeightTypes) {
    for (const uint32_t tokens : {1u, 19u}) {
      Random random(tokens);
      const uint32_t n = 70, k = 256;
      const std::vector<std::byte> gate = random_rows(dtype, n, k, random), up = random_rows(dtype, n, k, random);
      HostMatrix x(tokens, k, 8), out(tokens, n, 3), expected(tokens, n), room(tokens, n);
      x.fill(random);
      const std::vector<float> bias = random_bias(n, random);
      const auto enqueue = [&](BackendMemory& on, const ops::Matrix& x_at, const ops::Matrix& to_at) {
        auto of_gate = prepare(on.backend(), {gate.data(), dtype, n, k});
        auto of_up = prepare(on.backend(), {up.data(), dtype, n, k});
        on.backend().gated_matmul({x_at,
                                   {of_gate.get(), on.put(room), on.put(bias)},
                                   {of_up.get(), on.put(room)},
                                   to_at,
                                   ops::Activation::kGeluTanh});
        return std::pair{std::move(of_gate), std::move(of_up)};
      };
      run(memory, x, out, enqueue);
      run(memory_of_reference, x, expected, enqueue);
      EXPECT_TRUE(near(out.values(), expected.values(), product_tolerance(dtype, k).scaled(4), tokens,
                       fmt::format("{} x {}", to_string(dtype), tokens)));
      EXPECT_TRUE(out.is_padding_untouched());
    }
  }
}

// The promise behind answers that do not depend on batch mates: one summation order for every number of rows.
TEST_P(Matmul, ARowHasTheSameBitsInEveryBatch) {
  if (!backend_->info().invariant) GTEST_SKIP() << "not promised";
  BackendMemory memory(*backend_);
  for (const DType dtype : kWeightTypes) {
    Random random(8);
    const uint32_t tokens = 33, n = 67, k = 512;
    const std::vector<std::byte> data = random_rows(dtype, n, k, random);
    reserve(*backend_, tokens);
    const std::unique_ptr<ops::Weight> weight = prepare(*backend_, {data.data(), dtype, n, k});
    HostMatrix x(tokens, k), whole(tokens, n);
    x.fill(random);
    const auto run = [&](ops::Matrix from, ops::Matrix to) {
      const ops::Product product{weight.get(), to};
      backend_->matmul({from, {&product, 1}});
      EXPECT_TRUE(backend_->finish());
    };
    memory.clear();
    const ops::Matrix x_at = memory.put(x), whole_at = memory.put(whole), parts_at = memory.put(HostMatrix(tokens, n));
    run(x_at, whole_at);
    memory.get(whole, whole_at);
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 8u, 16u, 32u}) {
      HostMatrix parts(tokens, n);
      memory.set(parts_at, parts);
      for (uint32_t begin = 0; begin < tokens; begin += rows) {
        const uint32_t count = std::min(rows, tokens - begin);
        run(rows_of(x_at, begin, count), rows_of(parts_at, begin, count));
      }
      memory.get(parts, parts_at);
      EXPECT_TRUE(same_bits(parts.values(), whole.values(), 8, fmt::format("{}, {} rows", to_string(dtype), rows)));
    }
  }
}

TEST_P(Matmul, AWeightOfPartialBlocksIsRefused) {
  const std::vector<std::byte> data(1000);
  const Result<std::unique_ptr<ops::Weight>> weight = backend_->prepare({data.data(), DType::kQ8_0, 4, 33});
  ASSERT_FALSE(weight);
  EXPECT_EQ(weight.status().code(), ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Targets, Matmul, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace headwater::testing
