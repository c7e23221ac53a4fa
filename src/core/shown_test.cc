#include "core/shown.h"

#include <gtest/gtest.h>

namespace headwater {
namespace {

TEST(Shown, TextSteersNoTerminalAndIsCut) {
  EXPECT_EQ(shown("llama"), "llama");
  EXPECT_EQ(shown("a\nb\x1b[31m\xc2\x9b\xff \xc4\xa0\x7f"), "a\\nb\\x1b[31m\\xc2\\x9b\\xff \xc4\xa0\\x7f");
  EXPECT_EQ(shown(std::string(60000, 'x')), std::string(60, 'x') + "...");
  EXPECT_EQ(shown("\xc4\xa0\xc4\xa0\xc4", 2), "\xc4\xa0\xc4\xa0...");
  EXPECT_EQ(shown("\xc4"), "\\xc4");
  EXPECT_EQ(quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quoted("abc", 2), "\"ab...\"");
  EXPECT_EQ(quoted(""), "\"\"");
}

}  // namespace
}  // namespace headwater
