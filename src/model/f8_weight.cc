#include "model/f8_weight.h"

#include <fmt/ranges.h>

namespace headwater::model {
namespace {

constexpr uint64_t kBlock = 128;

struct Scales {
  std::vector<float> values;
  uint64_t row_step = 0;     // rows that share a scale; 0: all
  uint64_t column_step = 0;  // columns that share a scale; 0: all
  uint64_t columns = 1;      // of scales

  float at(uint64_t row, uint64_t column) const {
    const uint64_t r = row_step == 0 ? 0 : row / row_step;
    return values[r * columns + (column_step == 0 ? 0 : column / column_step)];
  }
};

Result<Scales> read_scales(const Tensor& weight, const Tensor& tensor) {
  const uint64_t rows = weight.rows(), columns = weight.columns();
  const uint64_t count = tensor.rows() * tensor.columns();
  const uint64_t block_rows = (rows + kBlock - 1) / kBlock, block_columns = (columns + kBlock - 1) / kBlock;
  const bool is_flat = tensor.shape.size() == 1 || tensor.columns() == 1;
  Scales scales;
  if (is_flat && count == rows) scales.row_step = 1;
  if (tensor.rows() == block_rows && tensor.columns() == block_columns) scales = {{}, kBlock, kBlock, block_columns};
  if (count != 1 && scales.row_step == 0) {
    return error(
        ErrorCode::kUnsupported,
        "scales '{}' of shape [{}] for '{}' of {} x {}; supported are one, one a row, and one a block of {} x {}",
        tensor.name, fmt::join(tensor.shape.rbegin(), tensor.shape.rend(), ", "), weight.name, rows, columns, kBlock,
        kBlock);
  }
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return error(ErrorCode::kUnsupported, "scales '{}' of {}; use F32, F16 or BF16", tensor.name,
                 to_string(tensor.dtype));
  }
  scales.values.resize(count);
  dequantize_row(tensor.dtype, tensor.data.data(), count, scales.values.data());
  return scales;
}

}  // namespace

Result<std::vector<uint16_t>> f8_weight_as_bf16(const SafetensorsFolder& folder, const Tensor& weight) {
  const Tensor* tensor = folder.find(fmt::format("{}_scale", weight.name));
  if (tensor == nullptr) tensor = folder.find(fmt::format("{}_scale_inv", weight.name));
  if (tensor == nullptr) {
    return error(ErrorCode::kNotFound, "tensor '{}' is F8_E4M3 and has no '{}_scale' or '{}_scale_inv' beside it",
                 weight.name, weight.name, weight.name);
  }
  HEADWATER_ASSIGN_OR_RETURN(const Scales scales, read_scales(weight, *tensor));
  const uint64_t rows = weight.rows(), columns = weight.columns();
  std::vector<uint16_t> values(rows * columns);
  const auto* codes = reinterpret_cast<const uint8_t*>(weight.data.data());
  for (uint64_t r = 0, i = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c, ++i) values[i] = f32_to_bf16(f8_e4m3_to_f32(codes[i]) * scales.at(r, c));
  }
  return values;
}

}  // namespace headwater::model
