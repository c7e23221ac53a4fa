// Every way of a product by itself, against double precision: which one a step takes is a matter of time. Skipped without a GPU.
#include "backend/cuda/products/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "support/compare.h"
#include "support/quantize.h"

namespace headwater::backend::cuda {
namespace {

constexpr std::array kTypes = {DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
constexpr std::array kWayNames = {"few", "batch", "dense"};

// Some weights that read the same rows, as q, k and v do.
class ProductsTest : public ::testing::Test {
 protected:
  struct Case {
    DType dtype;
    uint32_t tokens, columns;
    std::vector<uint32_t> rows;
    bool is_out_short, has_bias;
    uint64_t seed;
    uint32_t row_step = 1;  // rows of the weights that are looked at: every so many
    uint32_t slack = 0;     // elements between the rows of x
  };

  void SetUp() override {
    Result<DeviceTraits> traits = device_traits();
    if (!traits) GTEST_SKIP() << traits.status().message();
    is_hopper_ = traits->is_hopper;
    Result<Stream> stream = Stream::create();
    ASSERT_TRUE(stream) << stream.status().message();
    stream_ = std::make_unique<Stream>(std::move(stream).value());
  }

  void upload(const DeviceBuffer& to, const void* from, size_t bytes) {
    ASSERT_EQ(cudaMemcpy(to.data(), from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }

  // The outputs of a case, weight by weight, and what they should be.
  void run(Way way, const Case& c, std::vector<float>& got, std::vector<float>& expected) {
    Result<Products> products = Products::create(false);
    ASSERT_TRUE(products) << products.status().message();
    products->keep_to(way);
    Random random(c.seed);
    const uint64_t stride = pairs_of(c.columns) * kPairColumns + c.slack;
    std::vector<uint16_t> x(c.tokens * stride);
    for (uint32_t t = 0; t < c.tokens; ++t) {
      for (uint32_t i = 0; i < c.columns; ++i) x[t * stride + i] = f32_to_bf16(random.normal());
    }
    Result<DeviceBuffer> x_on_device = DeviceBuffer::create(x.size() * 2);
    ASSERT_TRUE(x_on_device);
    upload(*x_on_device, x.data(), x.size() * 2);
    std::vector<std::unique_ptr<ops::Weight>> weights;
    std::vector<ops::Product> calls;
    std::vector<DeviceBuffer> outs, biases;
    for (const uint32_t rows : c.rows) {
      const std::vector<std::byte> bytes = testing::random_weight(c.dtype, uint64_t{rows} * c.columns,
                                                                  1 / std::sqrt(static_cast<float>(c.columns)), random);
      std::vector<float> bias(rows);
      for (float& value : bias) value = c.has_bias ? random.normal() : 0;
      Result<std::unique_ptr<ops::Weight>> weight =
          products->prepare({const_cast<std::byte*>(bytes.data()), c.dtype, rows, c.columns}, *stream_);
      ASSERT_TRUE(weight) << weight.status().message();
      weights.push_back(std::move(weight).value());
      outs.push_back(DeviceBuffer::create(uint64_t{c.tokens} * rows * sizeof(float)).value());
      biases.push_back(DeviceBuffer::create(rows * sizeof(float)).value());
      upload(biases.back(), bias.data(), rows * sizeof(float));
      const ops::Matrix out{outs.back().as<float>(), c.tokens, rows, rows, c.is_out_short ? DType::kBF16 : DType::kF32};
      calls.push_back({weights.back().get(), out, c.has_bias ? biases.back().as<float>() : nullptr});
      std::vector<float> values(c.columns);
      std::vector<float> sums(uint64_t{c.tokens} * rows);
      for (uint32_t r = 0; r < rows; r += c.row_step) {
        dequantize_row(c.dtype, bytes.data() + r * row_bytes(c.dtype, c.columns), c.columns, values.data());
        for (uint32_t t = 0; t < c.tokens; ++t) {
          double sum = bias[r];
          for (uint32_t i = 0; i < c.columns; ++i) {
            sum += double{values[i]} * bf16_to_f32(x[t * stride + i]);
          }
          sums[t * rows + r] = static_cast<float>(sum);
        }
      }
      append_rows(c, rows, sums, expected);
    }
    ASSERT_TRUE(products->reserve(c.tokens));
    const ops::Matrix x_at{x_on_device->as<float>(), c.tokens, c.columns, stride, DType::kBF16};
    const Status status = products->run({x_at, calls}, stream_->get());
    ASSERT_TRUE(status) << status.message();
    ASSERT_TRUE(stream_->wait());
    for (size_t i = 0; i < calls.size(); ++i) {
      const uint64_t count = uint64_t{c.tokens} * c.rows[i];
      std::vector<std::byte> bytes(count * sizeof(float));
      ASSERT_EQ(cudaMemcpy(bytes.data(), outs[i].data(), bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      std::vector<float> outputs(count);
      for (uint64_t e = 0; e < count; ++e) {
        outputs[e] = c.is_out_short ? bf16_to_f32(reinterpret_cast<const uint16_t*>(bytes.data())[e])
                                    : reinterpret_cast<const float*>(bytes.data())[e];
      }
      append_rows(c, c.rows[i], outputs, got);
    }
  }
  // Of [tokens, rows] the rows that are looked at.
  static void append_rows(const Case& c, uint32_t rows, const std::vector<float>& of, std::vector<float>& to) {
    for (uint32_t t = 0; t < c.tokens; ++t) {
      for (uint32_t r = 0; r < rows; r += c.row_step) to.push_back(of[uint64_t{t} * rows + r]);
    }
  }
  void expect_near(Way way, const Case& c) {
    if (way == Way::kBatch && (!is_hopper_ || c.tokens > 64)) return;
    if (way == Way::kFew && c.tokens > 16) return;
    std::vector<float> got, expected;
    run(way, c, got, expected);
    std::string rows;
    for (const uint32_t n : c.rows) rows += fmt::format(" {}", n);
    EXPECT_TRUE(testing::near(
        got, expected, testing::tolerance_for(DType::kBF16, c.columns).scaled(c.dtype == DType::kBF16 ? 2 : 4), c.seed,
        fmt::format("{} {} [{}, {}] x {}", kWayNames[static_cast<size_t>(way)], to_string(c.dtype), rows, c.columns,
                    c.tokens)));
  }

  bool is_hopper_ = false;
  std::unique_ptr<Stream> stream_;
};

TEST_F(ProductsTest, EveryWayIsRightForEveryTypeAndNumberOfRows) {
  for (const DType dtype : kTypes) {
    for (const Way way : {Way::kFew, Way::kBatch, Way::kDense}) {
      for (const uint32_t tokens : {1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 57, 63, 64, 65}) {
        // Slices of clusters: 1, 2 and up to 8; several weights, one of which ends inside a tile.
        expect_near(way, {dtype, tokens, 64, {130}, false, true, 1});
        expect_near(way, {dtype, tokens, 544, {48, 16, 7}, true, tokens % 2 == 0, 2});
        expect_near(way, {dtype, tokens, 2048, {256, 64, 64}, false, false, 3, 1, 64});
      }
    }
  }
}

// A batch's blocks go round their ring of stages several times: in a slice of a cluster, and from one tile to the next where
// there are more tiles than places for blocks. Numbers of stages that are no multiples of what is multiplied together.
TEST_F(ProductsTest, ABatchGoesRoundItsRing) {
  for (const DType dtype : kTypes) {
    for (const uint32_t tokens : {8, 24, 64}) {
      expect_near(Way::kBatch, {dtype, tokens, 16384 + 192, {128}, false, true, 4, 3});
      expect_near(Way::kBatch, {dtype, tokens, 704, {40000}, true, false, 5, 101});
    }
  }
}

double activated(ops::Activation activation, double gate, double up) {
  switch (activation) {
    case ops::Activation::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case ops::Activation::kGeluTanh:
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate))) *
             up;
    default:
      gate = std::min(gate, 7.0);
      return gate / (1 + std::exp(-1.702 * gate)) * (std::clamp(up, -7.0, 7.0) + 1);
  }
}

// In one launch where there are enough rows: with rows that end inside a tile and inside a pair, every activation, biases or none.
TEST_F(ProductsTest, AGateAndUpOfABatchAreOneLaunch) {
  if (!is_hopper_) GTEST_SKIP() << "not built for this device";
  Result<Products> products = Products::create(false);
  ASSERT_TRUE(products) << products.status().message();
  products->keep_to(Way::kBatch);
  for (const auto& [rows, columns] : {std::pair{64u * 132, 128u}, std::pair{64u * 264 + 43, 192u}}) {
    for (const uint32_t tokens : {1u, 7u, 16u, 25u, 33u, 64u}) {
      Random random(rows + tokens);
      std::vector<std::byte> bytes[2];
      std::vector<float> biases[2];
      std::vector<std::unique_ptr<ops::Weight>> weights;
      std::vector<DeviceBuffer> memory;
      const auto put = [&](const void* data, size_t size) {
        memory.push_back(DeviceBuffer::create(size).value());
        upload(memory.back(), data, size);
        return memory.back().as<float>();
      };
      for (uint32_t i = 0; i < 2; ++i) {
        bytes[i] = testing::random_weight(DType::kBF16, uint64_t{rows} * columns, 0.1f, random);
        weights.push_back(products->prepare({bytes[i].data(), DType::kBF16, rows, columns}, *stream_).value());
        biases[i].resize(rows);
        for (float& bias : biases[i]) bias = tokens % 2 == 0 ? random.normal() : 0;
      }
      std::vector<uint16_t> x(uint64_t{tokens} * columns);
      for (uint16_t& value : x) value = f32_to_bf16(random.normal());
      const uint64_t stride = rows + 6 + rows % 2;
      std::vector<uint16_t> outs(tokens * stride, 0x3f80);
      float* const out = put(outs.data(), outs.size() * 2);
      const auto activation = static_cast<ops::Activation>(tokens % 3);
      const auto product = [&](uint32_t i) {
        return ops::Product{weights[i].get(), {}, tokens % 2 == 0 ? put(biases[i].data(), rows * 4) : nullptr};
      };
      ASSERT_TRUE(products->reserve(tokens));
      const Result<bool> done =
          products->run_gated({{put(x.data(), x.size() * 2), tokens, columns, columns, DType::kBF16},
                               product(0),
                               product(1),
                               {out, tokens, rows, stride, DType::kBF16},
                               activation},
                              stream_->get());
      ASSERT_TRUE(done) << done.status().message();
      ASSERT_TRUE(*done);
      ASSERT_TRUE(stream_->wait());
      ASSERT_EQ(cudaMemcpy(outs.data(), out, outs.size() * 2, cudaMemcpyDeviceToHost), cudaSuccess);
      std::vector<float> got, expected;
      for (uint32_t r = 0; r < rows; r += r + 64 < rows ? 37 : 1) {
        for (uint32_t t = 0; t < tokens; ++t) {
          double sums[2] = {biases[0][r], biases[1][r]};
          for (uint32_t i = 0; i < 2; ++i) {
            const auto* const weight = reinterpret_cast<const uint16_t*>(bytes[i].data()) + uint64_t{r} * columns;
            for (uint32_t c = 0; c < columns; ++c)
              sums[i] += double{bf16_to_f32(weight[c])} * bf16_to_f32(x[t * columns + c]);
          }
          expected.push_back(static_cast<float>(activated(activation, sums[0], sums[1])));
          got.push_back(bf16_to_f32(outs[t * stride + r]));
        }
      }
      EXPECT_TRUE(testing::near(got, expected, testing::tolerance_for(DType::kBF16, columns).scaled(4), tokens,
                                fmt::format("{} x {}, {} tokens", rows, columns, tokens)));
      for (uint32_t t = 0; t < tokens; ++t) {
        EXPECT_EQ(outs[t * stride + rows], 0x3f80) << "behind row " << t;
      }
    }
  }
}

// For the tools of compute-sanitizer: a cluster, three weights, part of a tile.
TEST_F(ProductsTest, SmallForSanitizers) {
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_1}) {
    expect_near(Way::kBatch, {dtype, 33, 1024, {144, 16, 7}, false, true, 6});
  }
}

TEST_F(ProductsTest, TheSameBitsEveryTime) {
  for (const Way way : {Way::kFew, Way::kBatch}) {
    if (way == Way::kBatch && !is_hopper_) continue;
    const Case c{DType::kQ8_0, 16, 4096, {512, 128, 128}, false, true, 5};
    std::vector<float> first, again, expected;
    run(way, c, first, expected);
    run(way, c, again, expected);
    EXPECT_EQ(first, again);
  }
}

}  // namespace
}  // namespace headwater::backend::cuda
