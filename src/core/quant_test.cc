// Blocks against the Python package `gguf`: tests/golden/dequantised.bin and quantised.bin of tools/golden/make_blocks.py.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "core/core.h"

namespace headwater {
namespace {

struct Record {
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

std::vector<Record> read_records(const std::string& name) {
  std::ifstream file(std::string(HEADWATER_SOURCE_DIR) + "/tests/golden/" + name, std::ios::binary);
  const auto read = [&](void* to, size_t bytes) {
    file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  };
  std::vector<Record> records;
  for (uint8_t length = 0; read(&length, 1), file.good();) {
    Record record;
    std::string type(length, ' ');
    uint32_t elements = 0, bytes = 0;
    read(type.data(), length);
    read(&elements, sizeof(elements));
    read(&bytes, sizeof(bytes));
    const std::optional<DType> dtype = dtype_named(type);
    EXPECT_TRUE(dtype) << type;
    record.dtype = dtype.value_or(DType::kF32);
    record.bytes.resize(bytes);
    record.values.resize(elements);
    read(record.bytes.data(), bytes);
    read(record.values.data(), elements * sizeof(float));
    EXPECT_TRUE(file.good()) << name << " is cut";
    records.push_back(std::move(record));
  }
  return records;
}

TEST(Quant, EveryTypeOfGgufHasTheBitsOfItsPackage) {
  const std::vector<Record> records = read_records("dequantised.bin");
  ASSERT_EQ(records.size(), 16u);
  for (const Record& record : records) {
    ASSERT_EQ(record.bytes.size(), row_bytes(record.dtype, record.values.size())) << to_string(record.dtype);
    std::vector<float> got(record.values.size());
    dequantize_row(record.dtype, record.bytes.data(), got.size(), got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(record.values[i]))
          << to_string(record.dtype) << " element " << i << ": " << got[i] << " instead of " << record.values[i];
    }
  }
}

TEST(Quant, WrittenBlocksHaveTheBytesOfThePackage) {
  const std::vector<Record> records = read_records("quantised.bin");
  ASSERT_EQ(records.size(), 4u);
  for (const Record& record : records) {
    std::vector<std::byte> got(record.bytes.size());
    ASSERT_TRUE(quantize_row(record.dtype, record.values, got.data()));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], record.bytes[i]) << to_string(record.dtype) << " byte " << i;
    }
  }
}

TEST(Quant, ValuesThatABlockCannotHoldAreRefused) {
  std::vector<float> values(32, 1.0f);
  std::vector<std::byte> out(row_bytes(DType::kF32, 32));
  values[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(quantize_row(DType::kBF16, values, out.data()).message(),
            "value 3 is nan; the largest that BF16 holds is 3.40282e+38");
  values[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(quantize_row(DType::kQ8_0, values, out.data()).code(), ErrorCode::kInvalidArgument);
  values[3] = 65505.0f;
  EXPECT_TRUE(quantize_row(DType::kQ8_0, values, out.data()));
  EXPECT_FALSE(quantize_row(DType::kQ4_1, values, out.data()));
  EXPECT_EQ(quantize_row(DType::kIQ4_NL, std::vector<float>(32), out.data()).code(), ErrorCode::kUnsupported);
}

TEST(Quant, ABlockTooSmallForItsScaleIsZero) {
  const std::vector<float> values(32, std::numeric_limits<float>::denorm_min() * 1000);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    std::vector<std::byte> block(block_bytes(dtype));
    std::vector<float> back(32, 1.0f);
    ASSERT_TRUE(quantize_row(dtype, values, block.data()));
    dequantize_row(dtype, block.data(), 32, back.data());
    for (const float value : back) EXPECT_EQ(value, 0.0f) << to_string(dtype);
  }
}

TEST(Quant, NamesAreFoundAndBuffersAreNoWeights) {
  for (size_t i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_named(to_string(dtype)), dtype);
    EXPECT_EQ(is_weight_type(dtype), dtype != DType::kF8E4M3 && dtype < DType::kF64);
  }
  EXPECT_FALSE(dtype_named("Q4_k"));
  const int64_t numbers[] = {-3, 1};
  float out[2];
  dequantize_row(DType::kI64, numbers, 2, out);
  EXPECT_EQ(out[0], -3.0f);
}

}  // namespace
}  // namespace headwater
