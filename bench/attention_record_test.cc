#include "bench/attention_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace headwater::bench {
namespace {

using ::testing::HasSubstr;
namespace json = boost::json;

std::vector<json::object> cell(const std::string& name, double auto_us, double off_us, double ratio) {
  const auto line = [&](const char* arm, double us) {
    return json::object{{"cell", name}, {"dtype", "BF16"},          {"arm", arm},
                        {"us", us},     {"predicted_us", 1.1 * us}, {"auto_over_off", ratio}};
  };
  return {line("auto", auto_us), line("off", off_us)};
}

std::vector<json::object> skipped(const std::string& name) {
  return {{{"cell", name}, {"dtype", "BF16"}, {"skipped", "the time was over"}}};
}

class AttentionRecords : public ::testing::Test {
 protected:
  // A file as the bench writes it. shards 0: not a part.
  std::string write(const std::string& name, const std::vector<std::vector<json::object>>& cells, uint32_t shard = 0,
                    uint32_t shards = 1, double gate = 0) {
    AttentionRecord record({{"commit", "abc"}, {"gate", gate}});
    for (const auto& lines : cells) record.set(lines);
    const std::string path = ::testing::TempDir() + "attention_record_" + name;
    std::ofstream out(path);
    for (const auto& lines : cells) {
      for (const json::object& line : lines) out << json::serialize(line) << '\n';
    }
    json::object summary = record.summary();
    summary["grid"] = "seed";
    summary["shard"] = shard;
    summary["shards"] = shards;
    out << json::serialize(summary) << '\n';
    return path;
  }
};

TEST_F(AttentionRecords, TheSummaryOfShardsIsThatOfOneRun) {
  const auto merged = merge_records(
      {write("a", {cell("one", 1, 4, 0.3), skipped("three")}, 0, 2), write("b", {cell("two", 2, 2, 1.005)}, 1, 2)});
  ASSERT_TRUE(merged) << merged.status().message();
  const AttentionRecord::Totals totals = merged->totals();
  EXPECT_EQ(totals.cells, 2u);
  EXPECT_EQ(totals.skipped, 1u);
  EXPECT_EQ(totals.worst, 1.005);
  EXPECT_EQ(totals.worst_cell, "two");
  EXPECT_NEAR(totals.geomean, 2, 1e-12);
  EXPECT_NEAR(totals.predicted_error, 0.1, 1e-12);
  EXPECT_EQ(merged->summary().at("commit"), "abc");
}

TEST_F(AttentionRecords, ACellMeasuredAgainCountsOnceAndTheLaterTimeHolds) {
  const auto merged = merge_records({write("a", {cell("one", 1, 1, 1.2), skipped("two"), cell("three", 1, 1, 1)}),
                                     write("b", {cell("two", 3, 3, 1), cell("one", 1, 9, 0.2), skipped("three")})});
  ASSERT_TRUE(merged) << merged.status().message();
  EXPECT_EQ(merged->totals().cells, 3u);
  EXPECT_EQ(merged->totals().skipped, 0u);
  EXPECT_EQ(merged->totals().worst, 1.0);
  std::ostringstream out;
  merged->write(out);
  EXPECT_THAT(out.str(), ::testing::Not(HasSubstr("skipped\":\"")));
}

TEST_F(AttentionRecords, CellsOfOtherTypesAreOtherCells) {
  std::vector<json::object> other = cell("one", 2, 2, 1);
  for (json::object& line : other) line["dtype"] = "F16";
  EXPECT_EQ(merge_records({write("a", {cell("one", 1, 1, 1), other})})->totals().cells, 2u);
}

TEST_F(AttentionRecords, WhatWouldHideACellIsRefused) {
  const std::string first = write("first", {cell("one", 1, 1, 1)}, 0, 3), last = write("last", {}, 2, 3);
  const Status missing = merge_records({first, last}).status();
  EXPECT_EQ(missing.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(missing.message(), HasSubstr("shard 1/3 of grid 'seed' is missing"));
  const Status gates = merge_records({write("a", {}), write("b", {}, 0, 1, 1.01)}).status();
  EXPECT_EQ(gates.code(), ErrorCode::kInvalidArgument);
  const std::string killed = ::testing::TempDir() + "attention_record_killed";
  std::ofstream(killed) << json::serialize(cell("one", 1, 1, 1)[0]) << '\n';
  EXPECT_EQ(merge_records({killed}).status().code(), ErrorCode::kCorrupt);
  std::ofstream(killed) << "{\"cell\": \n";
  EXPECT_EQ(merge_records({killed}).status().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(merge_records({killed + "_absent"}).status().code(), ErrorCode::kNotFound);
}

TEST_F(AttentionRecords, AGateNeedsEveryCellBelowIt) {
  AttentionRecord record({{"gate", 1.01}});
  record.set(cell("one", 1, 1, 1.009));
  EXPECT_TRUE(gate_holds(record));
  record.set(skipped("two"));
  EXPECT_THAT(gate_holds(record).message(), HasSubstr("1 cells were skipped"));
  record.set(cell("two", 1, 1, 1.02));
  EXPECT_THAT(gate_holds(record).message(), HasSubstr("1 cells are above the gate 1.01"));
  EXPECT_EQ(record.totals().failed, 1u);
}

}  // namespace
}  // namespace headwater::bench
