#include "backend/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

namespace headwater::backend::cpu {
namespace {

constexpr uint64_t kVectorBytes = 64;

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
}

// What a block of a quantised type holds: `scales` f16 values, then `words` groups of four bytes.
struct BlockLayout {
  uint64_t scales;
  uint64_t words;
  uint64_t scales_bytes(uint64_t blocks) const { return aligned(blocks * scales * kGroupFeatures * sizeof(uint16_t)); }
  uint64_t quants_bytes(uint64_t blocks) const { return blocks * words * kVectorBytes; }
};

BlockLayout block_layout(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {1, 8};
    case DType::kQ4_0:
      return {1, 4};
    default:
      return {2, 4};
  }
}

uint64_t bytes_of_group(DType dtype, uint64_t columns) {
  if (!has_kernel(dtype)) return kGroupFeatures * row_bytes(dtype, columns);
  if (block_elements(dtype) == 1) return aligned(columns * kGroupFeatures * block_bytes(dtype));
  const BlockLayout layout = block_layout(dtype);
  const uint64_t blocks = columns / kBlockColumns;
  return layout.scales_bytes(blocks) + layout.quants_bytes(blocks);
}

void pack_values(const std::byte* row, uint64_t columns, uint64_t bytes, uint64_t lane, std::byte* group) {
  for (uint64_t k = 0; k < columns; ++k) {
    std::memcpy(group + (k * kGroupFeatures + lane) * bytes, row + k * bytes, bytes);
  }
}

void pack_blocks(const std::byte* row, uint64_t blocks, DType dtype, uint64_t lane, std::byte* group) {
  const BlockLayout layout = block_layout(dtype);
  const uint32_t flip = dtype == DType::kQ8_0 ? 0x80808080u : 0;  // q + 128 as a byte
  std::byte* scales = group;
  std::byte* quants = group + layout.scales_bytes(blocks);
  for (uint64_t b = 0; b < blocks; ++b) {
    for (uint64_t s = 0; s < layout.scales; ++s, row += sizeof(uint16_t)) {
      std::memcpy(scales + ((b * layout.scales + s) * kGroupFeatures + lane) * sizeof(uint16_t), row, sizeof(uint16_t));
    }
    for (uint64_t j = 0; j < layout.words; ++j, row += sizeof(uint32_t)) {
      uint32_t word = 0;
      std::memcpy(&word, row, sizeof(word));
      word ^= flip;
      std::memcpy(quants + (b * layout.words + j) * kVectorBytes + lane * sizeof(word), &word, sizeof(word));
    }
  }
}

}  // namespace

bool has_kernel(DType dtype) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_0};
  return std::ranges::find(kTypes, dtype) != std::end(kTypes);
}

Result<std::unique_ptr<PackedWeight>> PackedWeight::create(const ops::WeightView& view, ThreadPool& pool,
                                                           WeightMemory& memory) {
  HEADWATER_RETURN_IF_ERROR(ops::check_weight_type(view.dtype));
  if (view.rows == 0 || view.columns == 0) {
    return error(ErrorCode::kInvalidArgument, "a weight of {} x {}; it needs rows and columns", view.rows,
                 view.columns);
  }
  if (view.columns % block_elements(view.dtype) != 0) {
    return error(ErrorCode::kInvalidArgument, "rows of {} columns are not whole blocks of {} ({} elements)",
                 view.columns, to_string(view.dtype), block_elements(view.dtype));
  }
  const uint64_t group_bytes = bytes_of_group(view.dtype, view.columns);
  const uint64_t groups = (view.rows + kGroupFeatures - 1) / kGroupFeatures;
  HEADWATER_ASSIGN_OR_RETURN(WeightMemory::Piece piece, memory.take(groups * group_bytes));
  std::unique_ptr<PackedWeight> weight(new PackedWeight(view, group_bytes, std::move(piece)));
  pool.run(weight->groups(), [&](uint32_t group, uint32_t) { weight->pack_group(view, group); });
  return weight;
}

void PackedWeight::pack_group(const ops::WeightView& view, uint64_t index) {
  std::byte* group = memory_.data + index * group_bytes_;
  const uint64_t bytes = row_bytes(dtype(), columns());
  const uint64_t first = index * kGroupFeatures;
  for (uint64_t lane = 0; lane < kGroupFeatures && first + lane < rows(); ++lane) {
    const std::byte* row = view.data + (first + lane) * bytes;
    if (!has_kernel()) {
      std::memcpy(group + lane * bytes, row, bytes);
    } else if (is_quantized()) {
      pack_blocks(row, columns() / kBlockColumns, dtype(), lane, group);
    } else {
      pack_values(row, columns(), block_bytes(dtype()), lane, group);
    }
  }
}

void PackedWeight::dequantize(uint64_t row, float* out) const {
  if (is_quantized()) return dequantize_blocks(row, out);
  const uint64_t lane = row % kGroupFeatures;
  if (!has_kernel()) {
    const uint8_t* from = group(row / kGroupFeatures) + lane * row_bytes(dtype(), columns());
    return dequantize_row(dtype(), from, columns(), out);
  }
  const uint64_t bytes = block_bytes(dtype());
  const uint8_t* values = group(row / kGroupFeatures) + lane * bytes;
  for (uint64_t k = 0; k < columns(); ++k, values += kGroupFeatures * bytes)
    dequantize_row(dtype(), values, 1, &out[k]);
}

void PackedWeight::decode_group(uint64_t index, float* out) const {
  const uint64_t lanes = std::min<uint64_t>(kGroupFeatures, rows() - index * kGroupFeatures);
  if (lanes < kGroupFeatures) std::fill_n(out, columns() * kGroupFeatures, 0.0f);
  const uint64_t elements = block_elements(dtype()), bytes = block_bytes(dtype());
  const uint8_t* block = group(index);
  for (uint64_t lane = 0; lane < lanes; ++lane) {
    for (uint64_t k = 0; k < columns(); k += elements, block += bytes) {
      float values[256];
      dequantize_row(dtype(), block, elements, values);
      for (uint64_t i = 0; i < elements; ++i) out[(k + i) * kGroupFeatures + lane] = values[i];
    }
  }
}

void PackedWeight::dequantize_blocks(uint64_t row, float* out) const {
  const BlockLayout layout = block_layout(dtype());
  const uint64_t blocks = columns() / kBlockColumns;
  const uint64_t lane = row % kGroupFeatures;
  const uint8_t* scales = group(row / kGroupFeatures) + lane * sizeof(uint16_t);
  const uint8_t* quants = group(row / kGroupFeatures) + layout.scales_bytes(blocks) + lane * sizeof(uint32_t);
  const uint32_t flip = dtype() == DType::kQ8_0 ? 0x80808080u : 0;
  for (uint64_t b = 0; b < blocks; ++b, out += kBlockColumns) {
    uint8_t block[34];  // as the file has it
    uint8_t* at = block;
    for (uint64_t s = 0; s < layout.scales; ++s, at += sizeof(uint16_t), scales += kGroupFeatures * sizeof(uint16_t)) {
      std::memcpy(at, scales, sizeof(uint16_t));
    }
    for (uint64_t j = 0; j < layout.words; ++j, at += sizeof(uint32_t), quants += kVectorBytes) {
      uint32_t word = 0;
      std::memcpy(&word, quants, sizeof(word));
      word ^= flip;
      std::memcpy(at, &word, sizeof(word));
    }
    dequantize_row(dtype(), block, kBlockColumns, out);
  }
}

}  // namespace headwater::backend::cpu
