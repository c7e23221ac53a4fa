#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headwater::text {
namespace {

std::vector<std::string> matches(std::string_view expression, std::string_view text) {
  std::vector<std::string> found;
  Regex::Space space;
  Regex::create(expression).value().each_match(text, space, [&](Regex::Match match) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  });
  return found;
}

using Found = std::vector<std::string>;

TEST(Regex, ReadsClassesAsUnicodeDefinesThem) {
  EXPECT_EQ(matches(R"(\s+)", "a\u0085\u2028b\u180ec\t"), (Found{"\u0085\u2028", "\t"}));
  EXPECT_EQ(matches(R"([\S]+)", "a\u0085b\u180ec"), (Found{"a", "b\u180ec"}));
  EXPECT_EQ(matches(R"(\w+)", "e\u0301_1 \u24b6-\u00b2"), (Found{"e\u0301_1", "\u24b6"}));
  EXPECT_EQ(matches(R"([^\s\w]+)", "a+b c"), (Found{"+"}));
}

TEST(Regex, TakesAScriptWithoutItsExtensions) {
  EXPECT_EQ(matches(R"(\p{Han}+)", "字、字々"), (Found{"字", "字々"}));
  EXPECT_EQ(matches(R"([^\P{Han}a]+)", "字、ab"), (Found{"字"}));
  EXPECT_EQ(matches(R"(\p{^Han}+)", "字、ab"), (Found{"、ab"}));
  EXPECT_EQ(matches(R"(\p{Lu}\p{White_Space})", "A b"), (Found{"A "}));
}

TEST(Regex, TakesAnchorsForThoseOfLines) {
  EXPECT_EQ(matches("^a|b$", "ab\nab"), (Found{"a", "b", "a", "b"}));
}

TEST(Regex, TakesAnEmptyMatchButNotBehindAnother) {
  EXPECT_EQ(matches("x*", "axxé"), (Found{"", "xx", ""}));
  EXPECT_EQ(matches("(?=b)", "abb"), (Found{"", ""}));
}

TEST(Regex, MatchesALiteralOnceItIsEscaped) {
  const std::string literal = "a.*[b] (c)\\d^$é";
  EXPECT_EQ(matches(Regex::escape(literal), "x" + literal + "y"), (Found{literal}));
}

TEST(Regex, RefusesByNameWhatItWouldReadDifferently) {
  for (const auto& [expression, named] : std::vector<std::pair<std::string, std::string>>{{R"(a\b)", R"(\b)"},
                                                                                          {R"(\h+)", R"(\h)"},
                                                                                          {R"(\K)", R"(\K)"},
                                                                                          {"a{2}+", "}+"},
                                                                                          {"[a&&b]", "class"},
                                                                                          {"[[:alpha:]]", "class"},
                                                                                          {"(?m:a)", "(?m"},
                                                                                          {"(*UTF)a", "(*"},
                                                                                          {"(", "does not compile"},
                                                                                          {"a\\", "backslash"}}) {
    const Status status = Regex::create(expression).status();
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << expression;
    EXPECT_THAT(status.message(), ::testing::HasSubstr(named)) << expression;
  }
}

TEST(Regex, EndsInBoundedTimeWhereAnExpressionBacktracksExponentially) {
  Regex::Space space;
  const Regex regex = Regex::create("(?:x+x+)+y", 10'000).value();
  EXPECT_FALSE(regex.find(std::string(5000, 'x'), 0, space).has_value());
}

}  // namespace
}  // namespace headwater::text
