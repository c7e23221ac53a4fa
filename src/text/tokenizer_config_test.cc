#include "text/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headwater::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ids = std::vector<TokenId>;

// The tokens a, b, c and d; a plain prompt begins and ends as given.
Result<TokenizerSpec> read(const Ids& prefix, const Ids& suffix, std::string_view config,
                           std::string_view generation = "", std::string_view model = "") {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "c", "d"};
  spec.types.assign(4, TokenType::kNormal);
  spec.prompt_prefix = prefix;
  spec.prompt_suffix = suffix;
  HEADWATER_RETURN_IF_ERROR(
      read_tokenizer_config({.tokenizer = {}, .config = config, .generation = generation, .model = model}, spec));
  return spec;
}

std::string refusal(std::string_view config, std::string_view generation = "", std::string_view model = "") {
  const Status status = read({}, {}, config, generation, model).status();
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  return status.message();
}

TEST(TokenizerConfig, ReadsTokensOfBothForms) {
  const TokenizerSpec spec =
      read({}, {}, R"({"bos_token": "b", "eos_token": {"content": "c", "lstrip": false}, "pad_token": null})").value();
  EXPECT_EQ(spec.bos, 1);
  EXPECT_EQ(spec.eos, 2);
  EXPECT_EQ(spec.padding, kNoToken);
}

TEST(TokenizerConfig, LeavesAroundAPromptWhatThePostProcessorSaysWhereNoFlagDoes) {
  const TokenizerSpec spec = read({0, 1}, {3}, R"({"bos_token": "a", "eos_token": "b"})").value();
  EXPECT_THAT(spec.prompt_prefix, ElementsAre(0, 1));
  EXPECT_THAT(spec.prompt_suffix, ElementsAre(3));
}

TEST(TokenizerConfig, PutsBosAndEosAroundAPromptOnceWhereItsFlagsAreTrue) {
  constexpr std::string_view kBoth =
      R"({"bos_token": "a", "eos_token": "b", "add_bos_token": true, "add_eos_token": true})";
  for (const Ids& around : {Ids{}, Ids{2}}) {
    TokenizerSpec spec = read(around, around, kBoth).value();
    Ids prefix = around, suffix = around;
    prefix.insert(prefix.begin(), 0);
    suffix.push_back(1);
    EXPECT_EQ(spec.prompt_prefix, prefix);
    EXPECT_EQ(spec.prompt_suffix, suffix);
    spec = read(prefix, suffix, kBoth).value();
    EXPECT_EQ(spec.prompt_prefix, prefix);
    EXPECT_EQ(spec.prompt_suffix, suffix);
  }
}

TEST(TokenizerConfig, TakesBosAndEosAwayWhereItsFlagsAreFalse) {
  constexpr std::string_view kNone =
      R"({"bos_token": "a", "eos_token": "b", "add_bos_token": false, "add_eos_token": false})";
  TokenizerSpec spec = read({0, 2}, {2, 1}, kNone).value();
  EXPECT_THAT(spec.prompt_prefix, ElementsAre(2));
  EXPECT_THAT(spec.prompt_suffix, ElementsAre(2));
  spec = read({}, {}, kNone).value();
  EXPECT_THAT(spec.prompt_prefix, IsEmpty());
}

TEST(TokenizerConfig, TakesTheEndsOfAnAnswerFromTheModelWhereTheGenerationNamesNone) {
  for (const char* silent : {"", "{}", R"({"eos_token_id": null})"}) {
    EXPECT_THAT(read({}, {}, "", silent, R"({"eos_token_id": [3, 1]})")->end_of_turn, ElementsAre(3, 1)) << silent;
    EXPECT_THAT(read({}, {}, "", silent, R"({"eos_token_id": 2})")->end_of_turn, ElementsAre(2)) << silent;
  }
  EXPECT_THAT(read({}, {}, "", R"({"eos_token_id": 0})", R"({"eos_token_id": 2})")->end_of_turn, ElementsAre(0));
  EXPECT_THAT(read({}, {}, "", "", R"({"eos_token_id": [4, 2]})")->end_of_turn, ElementsAre(2));
  EXPECT_THAT(read({}, {}, "", R"({"eos_token_id": [4, 2]})")->end_of_turn, ElementsAre(2)) << "4 is no token";
}

TEST(TokenizerConfig, PassesOverTokensThatNothingUses) {
  for (const char* token : {R"("[PAD]")", R"("")", "7", R"({"content": "e"})"}) {
    const auto spec = read({}, {}, fmt::format(R"({{"pad_token": {0}, "unk_token": {0}}})", token));
    ASSERT_TRUE(spec) << token << spec.status().message();
    EXPECT_EQ(spec->padding, kNoToken);
  }
}

TEST(TokenizerConfig, RefusesTokensFlagsAndIdsThatNameNothing) {
  for (const char* key : {"bos_token", "eos_token"}) {
    for (const char* value : {"5", "[\"a\"]", "{}", R"({"content":7})", "\"\"", "true"}) {
      EXPECT_THAT(
          refusal(fmt::format(R"({{"{}": {}}})", key, value)),
          HasSubstr(fmt::format("tokenizer_config.json: \"{}\" is {}; it needs a token's spelling", key, value)));
    }
    EXPECT_THAT(refusal(fmt::format(R"({{"{}": "e"}})", key)),
                HasSubstr(fmt::format("\"{}\" is \"e\", which is no token of tokenizer.json", key)));
  }
  EXPECT_THAT(refusal(R"({"bos_token": "a", "add_bos_token": 1})"), HasSubstr("it needs true, false or null"));
  EXPECT_THAT(refusal(R"({"add_eos_token": true})"), HasSubstr("\"eos_token\" names no token"));
  for (const char* ids : {"-1", "1.5", "\"a\"", "[0, false]", "{}"}) {
    const std::string file = fmt::format(R"({{"eos_token_id": {}}})", ids);
    EXPECT_THAT(refusal("", file), HasSubstr("generation_config.json: \"eos_token_id\" holds ")) << ids;
  }
  for (const char* ids : {"-1", "1.5", "\"a\"", "[0, false]", "{}"}) {
    EXPECT_THAT(refusal("", "", fmt::format(R"({{"eos_token_id": {}}})", ids)),
                HasSubstr("config.json: \"eos_token_id\" holds "))
        << ids;
  }
  EXPECT_THAT(refusal("[]"), HasSubstr("tokenizer_config.json is not a JSON object"));
}

}  // namespace
}  // namespace headwater::text
