#include "bench/step_profile.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

namespace headwater::bench {
namespace {

constexpr ops::Peaks kPeaks{.multiply_adds_per_s = 4e9,
                            .multiply_adds_flat_per_s = 1e9,
                            .weights_per_s = 1e9,
                            .byte_multiply_adds_per_s = 1e10,
                            .cache_bytes_per_s = 1e11,
                            .memory_bytes_per_s = 1e10};
constexpr ops::KvShape kKv{.layers = 2, .kv_heads = 1, .head_dim = 64, .v_head_dim = 64, .page_size = 32};

// One call with weights of these rows, `tokens` rows of input.
void add_product(WorkTotals& totals, uint32_t tokens, std::initializer_list<ops::Weight> weights, int64_t nanoseconds) {
  std::vector<ops::Product> products;
  for (const ops::Weight& weight : weights) products.push_back({&weight, {}});
  const auto columns = static_cast<uint32_t>(weights.begin()->columns());
  totals.add_product({{nullptr, tokens, columns, columns}, products}, nanoseconds);
}

const ProfileRow& row_of(const std::vector<ProfileRow>& rows, std::string_view kind) {
  for (const ProfileRow& row : rows) {
    if (row.kind == kind) return row;
  }
  ADD_FAILURE() << "no row " << kind;
  static const ProfileRow none;
  return none;
}

TEST(WorkTotals, KeepProductsOfOneShapeTogether) {
  WorkTotals totals;
  add_product(totals, 3, {{64, 96, DType::kQ4_1}, {32, 96, DType::kQ8_0}}, 100);
  add_product(totals, 5, {{64, 96, DType::kQ4_1}, {32, 96, DType::kQ8_0}}, 10);
  add_product(totals, 3, {{64, 96, DType::kF16}}, 7);
  const ProductWork& two = totals.products[0];
  EXPECT_EQ(two.columns, 96u);
  EXPECT_EQ(two.rows, 96u);
  EXPECT_EQ(two.work.nanoseconds, 110);
  EXPECT_EQ(two.work.bytes, 2u * (64 * 3 * 20 + 32 * 3 * 34));
  EXPECT_EQ(two.work.byte_multiply_adds, (3u + 5u) * 96 * 96);
  const ProductWork& plain = totals.products[1];
  EXPECT_EQ(plain.rows, 64u);
  EXPECT_EQ(plain.work.bytes, 64u * 96 * 2);
  EXPECT_EQ(plain.work.byte_multiply_adds, 0u);
}

TEST(WorkTotals, KeepTheTimeOfShapesBeyondTheArray) {
  WorkTotals totals;
  for (uint32_t i = 1; i <= kProductShapesMax + 4; ++i) add_product(totals, 1, {{i, 32, DType::kF32}}, 1);
  EXPECT_EQ(totals.products[kProductShapesMax - 2].work.nanoseconds, 1);
  EXPECT_EQ(totals.products.back().columns, 0u);
  EXPECT_EQ(totals.products.back().work.nanoseconds, 5);
}

TEST(WorkTotals, CountTheKeysThatEachQueryTokenSees) {
  const std::array<uint32_t, 3> kv_len{10, 7, 0};
  const std::array<uint32_t, 4> q_indptr{0, 3, 4, 5};  // the last row is padding
  WorkTotals totals;
  totals.add_token_keys({.page_size = 32, .kv_len = kv_len, .q_indptr = q_indptr});
  EXPECT_EQ(totals.token_keys, 8u + 9 + 10 + 7);
}

TEST(WorkTotals, SinceIsWhatWasAddedAfterTheCopy) {
  WorkTotals totals;
  add_product(totals, 1, {{64, 96, DType::kQ4_1}}, 100);
  totals.of(Kind::kNorm) += {.nanoseconds = 5, .bytes = 50};
  const WorkTotals before = totals;
  add_product(totals, 1, {{64, 96, DType::kQ4_1}}, 30);
  add_product(totals, 1, {{32, 96, DType::kQ4_1}}, 40);
  totals.of(Kind::kNorm) += {.nanoseconds = 2, .bytes = 20};
  const WorkTotals step = totals.since(before);
  EXPECT_EQ(step.products[0].work.nanoseconds, 30);
  EXPECT_EQ(step.products[1].work.nanoseconds, 40);
  EXPECT_EQ(step.products[1].rows, 32u);
  EXPECT_EQ(step.of(Kind::kNorm).nanoseconds, 2);
  EXPECT_EQ(step.of(Kind::kNorm).bytes, 20u);
}

WorkTotals small_step() {
  WorkTotals work;
  work.of(Kind::kNorm) = {.nanoseconds = 1'000'000, .bytes = 10'000'000};
  work.of(Kind::kAttend) = {.nanoseconds = 2'000'000};
  work.products[0] = {96, 64, {.nanoseconds = 3'000'000, .bytes = 10'000'000, .byte_multiply_adds = 5'000'000}};
  work.products[1] = {64, 96, {.nanoseconds = 2'000'000, .bytes = 1'000'000, .byte_multiply_adds = 15'000'000}};
  work.token_keys = 1000;
  return work;
}

TEST(StepProfile, SharesSumToOneAndTheHostHasTheRest) {
  StepProfile profile(StepPhase::kDecode, kPeaks, kKv, 2);
  profile.add_step(small_step(), 9'000'000, {});
  profile.add_step(small_step(), 11'000'000, {});
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 5u);  // kinds that took no time have no row
  EXPECT_DOUBLE_EQ(profile.ms(), 10);
  double shares = 0, ms = 0;
  for (const ProfileRow& row : rows) {
    shares += row.share;
    ms += row.ms;
  }
  EXPECT_NEAR(shares, 1, 1e-12);
  EXPECT_NEAR(ms, profile.ms(), 1e-12);
  EXPECT_DOUBLE_EQ(row_of(rows, "host").ms, 2);
  EXPECT_DOUBLE_EQ(row_of(rows, "product 96 -> 64").share, 0.3);
}

TEST(StepProfile, NamesTheBoundThatTakesLonger) {
  StepProfile profile(StepPhase::kDecode, kPeaks, kKv, 2);
  for (int i = 0; i < 2; ++i) profile.add_step(small_step(), 10'000'000, {.bytes_read = 1000, .bytes_unique = 1000});
  const auto rows = profile.rows();
  EXPECT_NEAR(row_of(rows, "product 96 -> 64").bound_ms, 1.0, 1e-9);  // 10 MB at 10 GB/s
  EXPECT_STREQ(row_of(rows, "product 96 -> 64").bound, "memory");
  EXPECT_NEAR(row_of(rows, "product 64 -> 96").bound_ms, 1.5, 1e-9);  // 15 M at 10 G/s
  EXPECT_STREQ(row_of(rows, "product 64 -> 96").bound, "arithmetic");
  EXPECT_NEAR(row_of(rows, "norm").bound_ms, 0.1, 1e-9);  // 10 MB at 100 GB/s
  // 2 layers x 2 heads x 1000 keys: 128 multiply-adds at 1 G/s and a weight at 1 G/s each.
  EXPECT_NEAR(row_of(rows, "attend").bound_ms, 2 * 2 * 1000 * 129 * 1e-6, 1e-9);
  EXPECT_STREQ(row_of(rows, "attend").bound, "arithmetic");
  EXPECT_STREQ(row_of(rows, "host").bound, "-");
}

TEST(StepProfile, PromptChunksFillRowTiles) {
  StepProfile profile(StepPhase::kPrefill, kPeaks, kKv, 2);
  profile.add_step(small_step(), 10'000'000, {.bytes_read = 1000, .bytes_unique = 1000});
  EXPECT_NEAR(row_of(profile.rows(), "attend").bound_ms, 2 * 2 * 1000 * (128.0 / 4 + 1) * 1e-6, 1e-9);
}

TEST(StepProfile, OfADeviceHasKindsTimedAloneAndTheRest) {
  constexpr ops::Peaks kDevice{.tensor_multiply_adds_per_s = 1e10, .memory_bytes_per_s = 1e10};
  StepProfile profile(StepPhase::kDecode, kDevice, kKv, 2);
  WorkTotals enqueued = small_step();
  enqueued.of(Kind::kSample).nanoseconds = 700'000;  // of the host
  for (int i = 0; i < 2; ++i) profile.add_step(enqueued, 10'000'000, {.bytes_read = 1000, .bytes_unique = 5'000'000});
  WorkTotals alone = small_step();
  alone.products[0].work.multiply_adds = 20'000'000;
  alone.products[1].work.multiply_adds = 500'000;
  alone.products[1].work.nanoseconds = 1'500'000;
  profile.set_kinds(alone);
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_DOUBLE_EQ(row_of(rows, "product 64 -> 96").ms, 1.5);
  EXPECT_DOUBLE_EQ(row_of(rows, "rest").ms, 10 - 1 - 2 - 3 - 1.5);
  EXPECT_NEAR(row_of(rows, "product 96 -> 64").bound_ms, 2.0, 1e-9);  // 20 M at 10 G/s, above 10 MB at 10 GB/s
  EXPECT_STREQ(row_of(rows, "product 96 -> 64").bound, "arithmetic");
  EXPECT_NEAR(row_of(rows, "product 64 -> 96").bound_ms, 0.1, 1e-9);
  EXPECT_NEAR(row_of(rows, "attend").bound_ms, 1.0, 1e-9);  // 2 layers of 5 MB at 10 GB/s
  EXPECT_STREQ(row_of(rows, "norm").bound, "-");
  std::stringstream table;
  print_profile(profile, table);
  EXPECT_NE(table.str().find("launch of its recording and rows that pad the step count"), std::string::npos);
}

TEST(StepProfile, GivesNoBoundWithoutPeaks) {
  StepProfile profile(StepPhase::kDecode, {}, kKv, 2);
  profile.add_step(small_step(), 10'000'000, {.bytes_read = 1000, .bytes_unique = 1000});
  for (const ProfileRow& row : profile.rows()) {
    EXPECT_STREQ(row.bound, "-") << row.kind;
    EXPECT_EQ(row.bound_ms, 0) << row.kind;
  }
  EXPECT_TRUE(StepProfile(StepPhase::kDecode, {}, kKv, 2).rows().empty());
}

TEST(StepProfile, WritesOneObjectAKindAndATableWithATotal) {
  StepProfile profile(StepPhase::kDecode, kPeaks, kKv, 2);
  profile.add_step(small_step(), 10'000'000, {});
  std::stringstream lines, table;
  write_profile(profile, "auto", lines);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto object = boost::json::parse(line).as_object();
    EXPECT_EQ(object.size(), 7u);
    EXPECT_EQ(object.at("arm").as_string(), "auto");
    EXPECT_EQ(object.at("phase").as_string(), "decode");
    EXPECT_GT(object.at("ms").as_double(), 0);
  }
  EXPECT_EQ(count, 5u);
  print_profile(profile, table);
  EXPECT_NE(table.str().find("product 96 -> 64"), std::string::npos);
  EXPECT_NE(table.str().find("step                       10.000  100.0%"), std::string::npos) << table.str();
  EXPECT_EQ(table.str().find("timed alone"), std::string::npos);
}

}  // namespace
}  // namespace headwater::bench
