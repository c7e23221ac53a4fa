#include "apps/usage_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headwater::apps {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& arguments) {
  CLI::App app("", "headwater");
  app.require_subcommand(1);
  uint32_t tokens = 0;
  std::string prompt;
  CLI::App* generate = app.add_subcommand("generate");
  generate->add_option("prompt", prompt);
  generate->add_option("-n,--max-tokens", tokens)->check(CLI::Range(1u, 100u));
  CLI::App* bench = app.add_subcommand("bench");
  bench->require_subcommand(1);
  bench->add_subcommand("attention");
  bench->add_subcommand("plan");
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& problem) {
    return explain_usage_error(app, problem);
  }
  return "";
}

TEST(UsageError, NamesTheNearestCommandOrAll) {
  EXPECT_EQ(error_of("genrate hi"),
            "\"genrate\" is no command of \"headwater\"; did you mean generate? The commands are generate, bench");
  EXPECT_THAT(error_of("bnech"), HasSubstr("did you mean bench?"));
  EXPECT_EQ(error_of("bench atention"),
            "\"atention\" is no command of \"headwater bench\"; did you mean attention? The "
            "commands are attention, plan");
  EXPECT_EQ(error_of("help"), "\"help\" is no command of \"headwater\". The commands are generate, bench");
  EXPECT_EQ(error_of("help bench plan"), error_of("help"));
  EXPECT_EQ(error_of(""), "\"headwater\" needs a command: generate, bench");
  EXPECT_EQ(error_of("bench"), "\"headwater bench\" needs a command: attention, plan");
}

TEST(UsageError, NamesTheNearestFlag) {
  EXPECT_EQ(
      error_of("generate --max-tokns 3 hi"),
      "--max-tokns is no flag of \"headwater generate\"; did you mean --max-tokens? See headwater generate --help");
  EXPECT_EQ(error_of("generate --frobnicate=3"),
            "--frobnicate is no flag of \"headwater generate\". See headwater generate --help");
}

TEST(UsageError, AsksForQuotesAroundWords) {
  EXPECT_EQ(error_of("generate why do"),
            "\"do\" is one argument too many for \"headwater generate\"; put quotes around a text with blanks");
}

TEST(UsageError, NamesAValueAndItsLimits) {
  EXPECT_THAT(error_of("generate -n -3 hi"), HasSubstr("--max-tokens: Value -3 not in range 1 to 100"));
  EXPECT_THAT(error_of("generate -n -3 hi"), HasSubstr("; see headwater generate --help"));
}

}  // namespace
}  // namespace headwater::apps
