// 8-bit pages to the bit: what rope_append stores, and what attention reads of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/attention.h"

namespace headwater::backend::cpu {
namespace {

constexpr uint32_t kWidth = 64;
constexpr uint32_t kPageSize = 16;
constexpr uint32_t kSlot = 5;
using Row = std::vector<float>;

// One page of one KV head; one token at a time.
class F8Pages : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    thread_ = ThreadPool::create(1).value();
    attention_ = std::make_unique<Attention>(GetParam(), *thread_);
    kv_ = CpuKvPool::create({.layers = 1,
                             .kv_heads = 1,
                             .head_dim = kWidth,
                             .v_head_dim = kWidth,
                             .page_size = kPageSize,
                             .pages = 1,
                             .dtype = DType::kF8E4M3})
              .value();
    const ops::StepLimits limits{
        .sequences_max = 1, .tokens_max = 1, .pages_per_sequence_max = 1, .page_size = kPageSize};
    check(attention_->reserve(limits, kv_->shape(), 1).is_ok(), "reserve");
  }

  const uint8_t* page() const { return reinterpret_cast<uint8_t*>(static_cast<CpuKvPool&>(*kv_).page(0, 0)); }

  void append(Row key, Row value, uint32_t slot) {
    const PageId first = 0;
    const uint32_t position = 0;
    ops::DeviceBatch batch{};
    batch.tokens = 1;
    batch.positions = {&position, 1};
    batch.append_pages = {&first, 1};
    batch.append_slots = {&slot, 1};
    ops::RopeAppendParams params{};
    params.k = {key.data(), 1, kWidth, kWidth};
    params.v = {value.data(), 1, kWidth, kWidth};
    params.batch = &batch;
    params.pool = kv_.get();
    attention_->rope_append(params);
  }

  // A query of zeros against the key at slot 0 alone: its value.
  Row attend() {
    const attention::WorkItem item{0, 1, 0, 0, 1, 0, attention::kFold | attention::kDirect};
    const PageId first = 0;
    const uint32_t zeros[2] = {0, 0};
    const uint8_t is_empty = 0;
    ops::DeviceBatch batch{};
    batch.tokens = 1;
    batch.page_ids = {&first, 1};
    batch.plans[0].items = {&item, 1};
    batch.plans[0].token_order = {zeros, 1};
    batch.plans[0].token_position = {zeros, 1};
    batch.plans[0].merge_indptr = {zeros, 2};
    batch.plans[0].token_empty = {&is_empty, 1};
    batch.plans[0].cut = kPageSize;
    Row q(kWidth), out(kWidth);
    ops::AttentionParams params{};
    params.q = {q.data(), 1, kWidth, kWidth};
    params.out = {out.data(), 1, kWidth, kWidth};
    params.batch = &batch;
    params.pool = kv_.get();
    params.q_heads = 1;
    attention_->attend(params);
    attention_->merge(params);
    return out;
  }

  std::unique_ptr<ThreadPool> thread_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<ops::KvPool> kv_;
};

Row row_of(uint64_t seed, float size) {
  Random random(seed);
  Row row(kWidth);
  for (float& x : row) x = size * random.normal();
  return row;
}

std::vector<Row> rows() {
  std::vector<Row> rows = {Row(kWidth),       row_of(1, 1),      row_of(2, 1e-3f), row_of(3, 1e30f),
                           row_of(4, 1e-42f), row_of(5, 1e-36f), row_of(6, 7e37f)};
  Row ties(kWidth);  // all halfway between neighbours but the greatest, whose scale is 1
  for (uint32_t i = 0; i < kWidth; ++i) {
    ties[i] =
        (f8_e4m3_to_f32(static_cast<uint8_t>(i)) + f8_e4m3_to_f32(static_cast<uint8_t>(i + 1))) / (i % 3 ? 2 : -2);
  }
  ties[9] = -448;
  rows.push_back(ties);
  Row little = row_of(7, 1e-4f);  // beside one large element the others lose their fractions
  little[20] = 30;
  rows.push_back(little);
  return rows;
}

// Of an element in bf16's order (kv_pages.h).
uint32_t place(uint32_t at) {
  const uint32_t element = at % 64;
  return at - element + (element < 32 ? 2 * element + 1 : 2 * (element - 32));
}

TEST_P(F8Pages, HoldTheBitsOfTheDefinition) {
  const std::vector<Row> all = rows();
  for (size_t n = 0; n < all.size(); ++n) {
    const Row &key = all[n], &value = all[all.size() - 1 - n];
    append(key, value, kSlot);
    const uint8_t *keys = page(), *values = page() + kPageSize * kWidth;
    float scales[2];
    std::memcpy(&scales[0], values + kPageSize * kWidth + kSlot * sizeof(float), sizeof(float));
    std::memcpy(&scales[1], values + kPageSize * (kWidth + sizeof(float)) + kSlot * sizeof(float), sizeof(float));
    EXPECT_EQ(scales[0], ops::f8_row_scale(key)) << n;
    EXPECT_EQ(scales[1], ops::f8_row_scale(value)) << n;
    for (uint32_t i = 0; i < kWidth; ++i) {
      const uint8_t stored_key = keys[place((i / 2 * 16 + kSlot) * 2 + i % 2)];
      const uint8_t stored_value = values[place(i / 16 * kPageSize * 16 + (kSlot / 2 * 16 + i % 16) * 2 + kSlot % 2)];
      EXPECT_EQ(stored_key, f32_to_f8_e4m3(key[i] * (1 / scales[0]))) << n << ", " << i << ": " << key[i];
      EXPECT_EQ(stored_value, f32_to_f8_e4m3(value[i] * (1 / scales[1]))) << n << ", " << i << ": " << value[i];
    }
  }
}

TEST_P(F8Pages, GiveBackEveryCodeAsItsValue) {
  for (uint32_t first = 0; first < 256; first += kWidth / 2) {
    Row value(kWidth);
    for (uint32_t i = 0; i < kWidth / 2; ++i) value[i] = f8_e4m3_to_f32(static_cast<uint8_t>(first + i));
    for (float& x : value) x = std::isnan(x) ? 1.0f : x;
    value[kWidth - 1] = 448;  // a scale of 1
    append(Row(kWidth, 1.0f), value, 0);
    EXPECT_EQ(attend(), value) << first;
  }
}

TEST_P(F8Pages, GiveBackARowThatIsNotFiniteAsNan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const uint32_t at : {0u, 17u, kWidth - 1}) {
      Row value = row_of(at, 1);
      value[at] = bad;
      append(Row(kWidth, 1.0f), value, 0);
      for (const float x : attend()) EXPECT_TRUE(std::isnan(x)) << bad << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, F8Pages, testing::ValuesIn(available_targets()),
                         [](const auto& param) { return to_string(param.param); });

}  // namespace
}  // namespace headwater::backend::cpu
