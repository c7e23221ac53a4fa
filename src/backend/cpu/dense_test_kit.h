// Random weights, activations and the targets to try, shared by the tests of this folder's dense operations.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/packed_weight.h"
#include "backend/cpu/targets.h"
#include "support/quantize.h"

namespace headwater::backend::cpu {

inline constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_0};

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

// A weight as a file holds it, and its values.
struct FileWeight {
  FileWeight(DType type, uint64_t row_count, uint64_t column_count, uint64_t seed)
      : bytes(testing::quantize(type, random_values(row_count * column_count, seed))),
        view{bytes.data(), type, row_count, column_count},
        values(row_count * column_count) {
    dequantize_row(type, bytes.data(), values.size(), values.data());
  }

  std::vector<std::byte> bytes;
  ops::WeightView view;
  std::vector<float> values;  // [rows, columns]
};

}  // namespace headwater::backend::cpu
