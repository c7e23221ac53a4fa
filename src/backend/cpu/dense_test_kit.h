// Random weights, activations and the targets to try, shared by the tests of this folder's dense operations.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/packed_weight.h"
#include "backend/cpu/targets.h"
#include "support/quantize.h"

namespace headwater::backend::cpu {

// The nearest number of columns, from a multiple of 32, that is whole blocks.
inline uint32_t whole_blocks(DType dtype, uint32_t columns) {
  return block_elements(dtype) > 32 ? (columns + 255) / 256 * 256 : columns;
}

inline std::vector<float> random_values(uint64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

inline Result<std::unique_ptr<PackedWeight>> pack(const ops::WeightView& view, ThreadPool& pool) {
  WeightMemory memory;
  return PackedWeight::create(view, pool, memory);
}

inline std::vector<std::byte> random_weight(DType dtype, uint64_t count, uint64_t seed) {
  Random random(seed);
  return testing::random_weight(dtype, count, 1.0f, random);
}

// A weight as a file holds it, and its values.
struct FileWeight {
  FileWeight(DType type, uint64_t row_count, uint64_t column_count, uint64_t seed)
      : bytes(random_weight(type, row_count * column_count, seed)),
        view{bytes.data(), type, row_count, column_count},
        values(row_count * column_count) {
    dequantize_row(type, bytes.data(), values.size(), values.data());
  }

  std::vector<std::byte> bytes;
  ops::WeightView view;
  std::vector<float> values;  // [rows, columns]
};

}  // namespace headwater::backend::cpu
