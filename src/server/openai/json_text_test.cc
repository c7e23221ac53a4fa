#include "server/openai/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "server/openai/decode.h"
#include "server/openai/served_test_kit.h"
#include "text/utf8.h"

namespace headwater::server::openai {
namespace {

using testing::HasSubstr;

std::string nested(size_t depth, std::string_view open, std::string_view close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

std::string refusal(std::string_view text) {
  boost::json::value value;
  const auto failed = parse_json(text, value);
  if (!failed) return "";
  EXPECT_EQ(failed->status, 400u);
  EXPECT_EQ(failed->type, "invalid_request_error");
  return failed->message;
}

TEST(JsonText, WhatIsNotJsonInUtf8IsRefused) {
  for (const std::string& text : std::vector<std::string>{
           "", " ", "hello", "{", "{\"a\": }", "{\"a\": 1,}", "{\"a\": 1} x", "{} {}", "{'a': 1}", "// note\n{}",
           "{\"a\": NaN}", "{\"a\": Infinity}", "{\"a\": -Infinity}", "{\"a\": 01}", "{\"a\": +1}", "{\"a\": \"\n\"}",
           "\xEF\xBB\xBF{}", "{\"a\": \"\xFF\"}", "{\"a\": \"\xC0\xAF\"}", "{\"a\": \"\xED\xA0\x80\"}",
           "{\"a\": \"\xF4\x90\x80\x80\"}", "{\"a\": \"\xC3\"}", "{\"\xFF\": 1}", "{\"a\": \"caf\xE9\"}",
           std::string("{\0\"\0a\0\"\0:\0001\0}\0", 14), R"({"a": "\ud800"})", R"({"a": "\udc00"})",
           R"({"a": "\ud800A"})", R"({"a": "\ud800\ud800"})", R"({"\ud800": 1})"}) {
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON")) << text;
  }
  EXPECT_EQ(refusal(R"( {"a": "\ud83d\ude00 é", "b": [1, -2.5e3, true, null]} )"), "");
}

TEST(JsonText, DuplicateKeysOfOneObjectAreRefused) {
  EXPECT_THAT(refusal(R"({"n": 1, "n": 2})"), HasSubstr("\"n\" twice"));
  EXPECT_THAT(refusal(R"({"n": 1, "\u006e": 2})"), HasSubstr("\"n\" twice"));
  EXPECT_THAT(refusal(R"({"a": {"b": {}, "c": 1, "b": 2}})"), HasSubstr("\"b\" twice"));
  EXPECT_EQ(refusal(R"({"n": {"n": 1}, "m": {"n": 1}, "l": [{"n": 1}, {"n": 2}]})"), "");
}

TEST(JsonText, NestingIsBounded) {
  EXPECT_EQ(refusal(nested(kJsonDepthMax, "[", "]")), "");
  EXPECT_THAT(refusal(nested(kJsonDepthMax + 1, "[", "]")), HasSubstr("deeper than 64"));
  EXPECT_THAT(refusal(nested(100'000, "[", "]")), HasSubstr("deeper than 64"));
  EXPECT_THAT(refusal(nested(100'000, "{\"a\":", "}")), HasSubstr("deeper than 64"));
  EXPECT_NE(refusal(std::string(8u << 20, '[')), "");
}

TEST(JsonText, TheNumberOfValuesIsBounded) {
  std::string ones = "[1";
  for (size_t i = 2; i < kJsonValuesMax; ++i) ones += ",1";
  EXPECT_EQ(refusal(ones + "]"), "");
  EXPECT_THAT(refusal(ones + ",1]"), HasSubstr("more than 1048576"));
  EXPECT_THAT(refusal(ones + ",{}]"), HasSubstr("more than 1048576"));
}

TEST(JsonText, BadBodiesAreRefusedQuickly) {
  const TestModel model;
  const auto begin = std::chrono::steady_clock::now();
  const std::string padding(7'000'000, 'x');
  for (const std::string& body :
       {nested(100'000, "[", "]"), R"({"prompt": "a", "x": ")" + padding + R"(", "x": 1})", "\"" + padding + "\"",
        R"({"prompt": "a", "temperature": ")" + padding + R"("})", R"({"stop": [")" + padding + R"("], "prompt": "a"})",
        R"({"prompt": "\ud800)" + padding + R"("})"}) {
    Generation out;
    const auto failed = decode_generation(Endpoint::kCompletions, body, model.served(), out);
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->status, 400u);
    EXPECT_LT(failed->message.size(), 400u);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(JsonText, QuotedValuesAreCutBetweenCharacters) {
  EXPECT_EQ(quoted({1, "a", nullptr}), R"([1,"a",null])");
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "\xC3\xA9";
  const std::string cut = quoted(boost::json::value(accents));
  EXPECT_LE(cut.size(), 83u);
  EXPECT_TRUE(cut.ends_with("..."));
  EXPECT_TRUE(text::is_valid_utf8(cut));
  EXPECT_EQ(quoted(boost::json::value(std::string(78, 'x'))), '"' + std::string(78, 'x') + '"') << "exactly 80 bytes";
}

}  // namespace
}  // namespace headwater::server::openai
