// Times every way of a product (products.h) by itself, on the device: bench_products [SHAPE...], for example "gate_up down".
// A line for each shape, type and number of rows: microseconds of a product and the rate at which it reads its weight.
//
// Products of different weights follow each other in a recorded graph, so many that none is left in the L2 when its turn comes
// again; each may begin while the one ahead of it ends, as in a step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/products/batch.h"
#include "backend/cuda/products/products.h"

namespace headwater::backend::cuda {
namespace {

struct Shape {
  std::string_view name;
  uint32_t columns;
  std::vector<uint32_t> rows;  // of weights that read the same x

  uint32_t rows_of_all() const {
    uint32_t all = 0;
    for (const uint32_t n : rows) all += n;
    return all;
  }
};

constexpr std::array kTypes = {DType::kBF16, DType::kQ8_0, DType::kQ4_0};
constexpr std::array<uint32_t, 7> kTokens = {1, 2, 8, 16, 24, 32, 64};
constexpr uint32_t kTokensMax = 64;
constexpr std::array<std::pair<Way, std::string_view>, 3> kWays = {
    {{Way::kFew, "few"}, {Way::kBatch, "batch"}, {Way::kDense, "dense"}}};

std::vector<Shape> shapes() {  // of Llama-3.1-8B
  return {{"qkv", 4096, {4096, 1024, 1024}},
          {"output", 4096, {4096}},
          {"gate_up", 4096, {14336, 14336}},
          {"down", 14336, {4096}},
          {"head", 4096, {128256}}};
}

// As many copies of a shape's weights as the L2 does not hold, and room for x and outputs.
class ShapeBench {
 public:
  static Result<ShapeBench> create(const Shape& shape, DType dtype, const Stream& stream) {
    constexpr uint64_t kBytesMin = 300'000'000;
    HEADWATER_ASSIGN_OR_RETURN(Products products, Products::create(false));
    ShapeBench bench(shape, dtype, std::move(products), stream);
    const uint64_t bytes = shape.rows_of_all() * row_bytes(dtype, shape.columns);
    std::vector<std::byte> data(row_bytes(dtype, shape.columns) * *std::ranges::max_element(shape.rows));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 24 & 0x3b);  // finite
    for (uint64_t copies = std::clamp<uint64_t>(kBytesMin / bytes + 1, 2, 24); copies > 0; --copies) {
      auto& weights = bench.weights_.emplace_back();
      for (const uint32_t n : shape.rows) {
        HEADWATER_ASSIGN_OR_RETURN(auto weight,
                                   bench.products_.prepare({data.data(), dtype, n, shape.columns}, stream));
        weights.push_back(std::move(weight));
      }
    }
    HEADWATER_RETURN_IF_ERROR(bench.products_.reserve(kTokensMax));
    HEADWATER_RETURN_IF_ERROR(bench.x_.grow(uint64_t{kTokensMax} * shape.columns * sizeof(uint16_t)));
    HEADWATER_RETURN_IF_ERROR(bench.out_.grow(uint64_t{kTokensMax} * shape.rows_of_all() * sizeof(uint16_t)));
    return bench;
  }

  bool can_go(Way way, uint32_t tokens, bool is_hopper) const {
    if (way == Way::kDense) return true;
    return way == Way::kFew ? products_.has_few() && tokens <= kFewTokens : is_hopper && tokens <= kBatchTokens;
  }

  // Of one product.
  Result<double> us(Way way, uint32_t tokens) {
    constexpr int kRuns = 9;
    products_.keep_to(way);
    HEADWATER_RETURN_IF_ERROR(run(0, tokens));  // cuBLASLt chooses its own way
    HEADWATER_RETURN_IF_ERROR(stream_.wait());
    Status status;
    HEADWATER_ASSIGN_OR_RETURN(const Graph graph, Graph::record(stream_, [&] {
                                 for (size_t i = 0; i < weights_.size() && status; ++i) status = run(i, tokens);
                               }));
    HEADWATER_RETURN_IF_ERROR(std::move(status));
    HEADWATER_ASSIGN_OR_RETURN(const Event begin, Event::create());
    HEADWATER_ASSIGN_OR_RETURN(const Event end, Event::create());
    std::vector<float> ms(kRuns);
    for (float& run_ms : ms) {
      HEADWATER_RETURN_IF_ERROR(checked(cudaEventRecord(begin.get(), stream_.get()), "timing"));
      HEADWATER_RETURN_IF_ERROR(graph.launch(stream_));
      HEADWATER_RETURN_IF_ERROR(checked(cudaEventRecord(end.get(), stream_.get()), "timing"));
      HEADWATER_RETURN_IF_ERROR(checked(cudaEventSynchronize(end.get()), "timing"));
      HEADWATER_RETURN_IF_ERROR(checked(cudaEventElapsedTime(&run_ms, begin.get(), end.get()), "timing"));
    }
    std::ranges::nth_element(ms, ms.begin() + kRuns / 2);
    return 1e3 * ms[kRuns / 2] / static_cast<double>(weights_.size());
  }

 private:
  ShapeBench(const Shape& shape, DType dtype, Products products, const Stream& stream)
      : shape_(shape), dtype_(dtype), products_(std::move(products)), stream_(stream) {}

  Status run(size_t copy, uint32_t tokens) {
    const uint32_t rows = shape_.rows_of_all();
    std::vector<ops::Product> calls;
    uint32_t at = 0;
    for (const auto& weight : weights_[copy]) {
      const auto n = static_cast<uint32_t>(weight->rows());
      calls.push_back(
          {weight.get(), {reinterpret_cast<float*>(out_.as<uint16_t>() + at), tokens, n, rows, DType::kBF16}});
      at += n;
    }
    return products_.run({{x_.as<float>(), tokens, shape_.columns, shape_.columns, DType::kBF16}, calls},
                         stream_.get());
  }

  const Shape& shape_;
  DType dtype_;
  Products products_;
  const Stream& stream_;
  std::vector<std::vector<std::unique_ptr<ops::Weight>>> weights_;
  DeviceBuffer x_, out_;
};

Status run(std::span<char*> names) {
  HEADWATER_ASSIGN_OR_RETURN(const DeviceTraits traits, device_traits());
  HEADWATER_ASSIGN_OR_RETURN(const Stream stream, Stream::create());
  fmt::print("{}\n{:<8} {:<5} {:>4}  {}\n", traits.name, "product", "type", "rows", "us and TB/s of each way");
  for (const Shape& shape : shapes()) {
    if (!names.empty() && std::ranges::find(names, shape.name) == names.end()) continue;
    for (const DType dtype : kTypes) {
      HEADWATER_ASSIGN_OR_RETURN(ShapeBench bench, ShapeBench::create(shape, dtype, stream));
      for (const uint32_t tokens : kTokens) {
        fmt::print("{:<8} {:<5} {:>4} ", shape.name, to_string(dtype), tokens);
        for (const auto& [way, name] : kWays) {
          if (!bench.can_go(way, tokens, traits.is_hopper)) continue;
          HEADWATER_ASSIGN_OR_RETURN(const double us, bench.us(way, tokens));
          const DType read = way == Way::kDense ? DType::kBF16 : dtype;
          fmt::print(" {} {:.1f} {:.2f}", name, us, shape.rows_of_all() * row_bytes(read, shape.columns) / us / 1e6);
        }
        fmt::print("\n");
      }
    }
  }
  return {};
}

}  // namespace
}  // namespace headwater::backend::cuda

int main(int count, char** arguments) {
  const headwater::Status status =
      headwater::backend::cuda::run({arguments + 1, static_cast<size_t>(count > 0 ? count - 1 : 0)});
  if (status) return 0;
  fmt::print(stderr, "bench_products: {}\n", status.message());
  return 1;
}
