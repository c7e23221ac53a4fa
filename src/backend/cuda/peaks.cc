#include "backend/cuda/peaks.h"

#include <algorithm>

#include "backend/cuda/products/dense.h"
#include "backend/cuda/products/timing.h"
#include "backend/cuda/stopwatch.h"

namespace headwater::backend::cuda {
namespace {

// Values of either sign in [1, 2): equal ones would draw less power than a model's, and run at higher clocks.
Status fill_with_bf16(const DeviceBuffer& buffer, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> values(uint64_t{1} << 20);
  for (uint16_t& value : values) value = static_cast<uint16_t>((random() & 0x807f) | 0x3f80);
  const size_t piece = values.size() * sizeof(uint16_t);
  for (size_t at = 0; at < buffer.size(); at += piece) {
    HEADWATER_RETURN_IF_ERROR(checked(
        cudaMemcpy(buffer.data() + at, values.data(), std::min(piece, buffer.size() - at), cudaMemcpyHostToDevice),
        "upload"));
  }
  return {};
}

Result<double> tensor_multiply_adds_per_s(const Stream& stream) {
  constexpr uint32_t kColumns = 8192, kRows = 8192, kTokens = 4096;
  HEADWATER_ASSIGN_OR_RETURN(DenseProducts products, DenseProducts::create(false));
  HEADWATER_ASSIGN_OR_RETURN(const DeviceBuffer weight, DeviceBuffer::create(uint64_t{kRows} * kColumns * 2));
  HEADWATER_ASSIGN_OR_RETURN(const DeviceBuffer x, DeviceBuffer::create(uint64_t{kTokens} * kColumns * 2));
  HEADWATER_ASSIGN_OR_RETURN(const DeviceBuffer out, DeviceBuffer::create(uint64_t{kTokens} * kRows * 2));
  HEADWATER_RETURN_IF_ERROR(fill_with_bf16(weight, 1));
  HEADWATER_RETURN_IF_ERROR(fill_with_bf16(x, 2));
  const DenseCall call{.weight = weight.data(),
                       .n = kRows,
                       .k = kColumns,
                       .x = x.data(),
                       .x_stride = kColumns,
                       .is_short = true,
                       .out = {out.data(), kRows, true},
                       .tokens = kTokens};
  HEADWATER_ASSIGN_OR_RETURN(const float ms, shortest_ms([&] { return products.run(call, stream.get()); },
                                                         products.workspace(), stream.get()));
  return double{kRows} * kColumns * kTokens / (1e-3 * double{ms});
}

Result<double> memory_bytes_per_s(const Stream& stream) {
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  HEADWATER_ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::create(4 * kBytes));
  HEADWATER_ASSIGN_OR_RETURN(const double us, read_floor_us(stream, memory, kBytes, 1 << 16));
  return static_cast<double>(kBytes) / (1e-6 * us);
}

}  // namespace

Result<ops::Peaks> measure_peaks(const Stream& stream) {
  ops::Peaks peaks;
  HEADWATER_ASSIGN_OR_RETURN(peaks.tensor_multiply_adds_per_s, tensor_multiply_adds_per_s(stream));
  HEADWATER_ASSIGN_OR_RETURN(peaks.memory_bytes_per_s, memory_bytes_per_s(stream));
  return peaks;
}

}  // namespace headwater::backend::cuda
