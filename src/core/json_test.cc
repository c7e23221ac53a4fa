#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headwater {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view text) {
  const Result<json::Value> value = json::parse(text, "x.json");
  EXPECT_FALSE(value) << text;
  EXPECT_EQ(value.status().code(), ErrorCode::kCorrupt);
  return value.status().message();
}

TEST(Json, SaysWhereAndWhatWasFound) {
  EXPECT_THAT(refusal("{\"a\": 1,}"), HasSubstr("x.json: not JSON from offset 8, found byte 0x7d"));
  EXPECT_THAT(refusal("{\"a\": [1, 2"), HasSubstr("ends at offset 11"));
  EXPECT_THAT(refusal(""), HasSubstr("ends at offset 0"));
  EXPECT_THAT(refusal("1 2"), HasSubstr("offset 2"));
  EXPECT_THAT(refusal("\"\xff\""), HasSubstr("offset"));
  EXPECT_THAT(refusal("NaN"), HasSubstr("offset 0"));
}

TEST(Json, TakesSixtyFourLevelsAndNotOneMore) {
  EXPECT_TRUE(json::parse(std::string(64, '[') + std::string(64, ']'), "x"));
  EXPECT_THAT(refusal(std::string(65, '[') + std::string(65, ']')), HasSubstr("offset 64"));
  refusal(std::string(1 << 20, '['));
}

TEST(Json, TheLastOfARepeatedNameCounts) {
  EXPECT_EQ(json::parse("{\"a\": 1, \"a\": 2}", "x")->at("a"), 2);
}

TEST(Json, AShortTextCannotAskForMuchMemory) {
  std::string text = "[";
  for (int i = 0; i < 2'000'000; ++i) text += "0,";
  EXPECT_THAT(refusal(text + "0]"), HasSubstr("memory"));
}

TEST(Json, FindsRepeatedNamesOfTheOutermostObjectOnly) {
  EXPECT_EQ(json::repeated_name(R"({"a": {"b": 1, "b": 2}, "c": "a", "a ": ["a"]})"), std::nullopt);
  EXPECT_EQ(json::repeated_name(R"({"a": 1, "x\"": {}, "a": 1})"), "a");
  EXPECT_EQ(json::repeated_name("[]"), std::nullopt);
}

TEST(Json, TextOfWhatIsNoStringIsEmpty) {
  const json::Value value = *json::parse(R"({"a": "b", "c": 1})", "x");
  EXPECT_EQ(json::text_at(value, "a"), "b");
  EXPECT_EQ(json::text_at(value, "c"), "");
  EXPECT_EQ(json::text_at(value.at("a"), "a"), "");
}

TEST(Json, ReadsOnlyWholeNumbersAsUnsigned) {
  const json::Value value = *json::parse(R"({"a": 3, "b": -1, "c": 3.0, "d": 18446744073709551615, "e": null})", "x");
  EXPECT_EQ(json::to_unsigned(*json::find(value, "a")), 3u);
  EXPECT_FALSE(json::to_unsigned(*json::find(value, "b")));
  EXPECT_FALSE(json::to_unsigned(*json::find(value, "c")));
  EXPECT_EQ(json::to_unsigned(*json::find(value, "d")), ~uint64_t{0});
  EXPECT_EQ(json::find(value, "e"), nullptr);
  EXPECT_EQ(json::find(value, "f"), nullptr);
  EXPECT_EQ(json::find(value.at("a"), "a"), nullptr);
}

}  // namespace
}  // namespace headwater
