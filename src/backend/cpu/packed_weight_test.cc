#include "backend/cpu/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/dense_test_kit.h"

namespace headwater::backend::cpu {
namespace {

class PackedWeightOf : public ::testing::TestWithParam<DType> {};

TEST_P(PackedWeightOf, GivesBackTheBitsOfEveryRow) {
  const auto pool = std::move(ThreadPool::create(2)).value();
  for (const uint64_t rows : {1u, 15u, 16u, 33u}) {
    for (const uint32_t columns_min : {32u, 96u, 576u}) {
      const uint64_t columns = whole_blocks(GetParam(), columns_min);
      const FileWeight file(GetParam(), rows, columns, rows + columns);
      const auto weight = std::move(pack(file.view, *pool)).value();
      std::vector<float> row(columns);
      for (uint64_t r = 0; r < rows; ++r) {
        weight->dequantize(r, row.data());
        ASSERT_EQ(std::memcmp(row.data(), &file.values[r * columns], columns * sizeof(float)), 0) << r;
      }
    }
  }
}

TEST_P(PackedWeightOf, NeedsNoMoreMemoryThanTheFileForWholeGroups) {
  const auto pool = std::move(ThreadPool::create(1)).value();
  const FileWeight file(GetParam(), 64, whole_blocks(GetParam(), 576), 1);
  const auto weight = std::move(pack(file.view, *pool)).value();
  EXPECT_EQ(weight->groups() * weight->group_bytes(), file.view.bytes());
}

TEST(PackedWeight, DecodesAGroupToThePackingOfF32) {
  EXPECT_TRUE(has_kernel(DType::kQ8_0));
  EXPECT_FALSE(has_kernel(DType::kQ6_K));
  const auto pool = std::move(ThreadPool::create(1)).value();
  const FileWeight file(DType::kQ6_K, 21, 512, 3);
  const auto weight = std::move(pack(file.view, *pool)).value();
  const auto plain =
      std::move(pack({reinterpret_cast<const std::byte*>(file.values.data()), DType::kF32, 21, 512}, *pool)).value();
  std::vector<float> group(512 * kGroupFeatures, 99.0f);
  for (const uint64_t index : {0u, 1u}) {
    weight->decode_group(index, group.data());
    EXPECT_EQ(std::memcmp(group.data(), plain->group(index), plain->group_bytes()), 0) << index;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, PackedWeightOf, ::testing::ValuesIn(testing::weight_types()),
                         [](const auto& test) { return to_string(test.param); });

TEST(WeightMemory, GivesAlignedZeroedPiecesThatOutliveIt) {
  std::vector<WeightMemory::Piece> pieces;
  {
    WeightMemory memory;
    for (const uint64_t bytes :
         {uint64_t{100}, uint64_t{64}, uint64_t{40} << 20, uint64_t{31} << 20, uint64_t{2} << 20}) {
      pieces.push_back(std::move(memory.take(bytes)).value());
      std::byte* data = pieces.back().data;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      EXPECT_EQ(data[0], std::byte{0});
      EXPECT_EQ(data[bytes - 1], std::byte{0});
      data[0] = data[bytes - 1] = static_cast<std::byte>(pieces.size());
    }
  }
  EXPECT_EQ(pieces[0].mapping, pieces[1].mapping);
  EXPECT_NE(pieces[3].mapping, pieces[4].mapping);
  for (size_t i = 0; i < pieces.size(); ++i) EXPECT_EQ(pieces[i].data[0], static_cast<std::byte>(i + 1));
}

TEST(PackedWeight, KeepsTheExtremeBytesOfQ8) {
  const auto pool = std::move(ThreadPool::create(1)).value();
  std::vector<std::byte> block(34);
  testing::put_u16(block.data(), f32_to_f16(0.5f));
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<std::byte>(i % 2 == 0 ? -128 : 127);
  const auto weight = std::move(pack({block.data(), DType::kQ8_0, 1, 32}, *pool)).value();
  std::vector<float> row(32);
  weight->dequantize(0, row.data());
  EXPECT_EQ(row[0], -64.0f);
  EXPECT_EQ(row[31], 63.5f);
}

TEST(PackedWeight, RefusesEmptyWeightsAndPartialBlocks) {
  const auto pool = std::move(ThreadPool::create(1)).value();
  const std::byte byte{};
  EXPECT_EQ(pack({&byte, DType::kF32, 0, 32}, *pool).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pack({&byte, DType::kQ4_1, 1, 40}, *pool).status().message(),
            "rows of 40 columns are not whole blocks of Q4_1 (32 elements)");
}

}  // namespace
}  // namespace headwater::backend::cpu
