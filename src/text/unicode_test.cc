#include "text/unicode.h"

#include <gtest/gtest.h>

namespace headwater::text {
namespace {

TEST(Unicode, NormalizesWhatIsNotAsciiWithTheCharacterBeforeIt) {
  EXPECT_EQ(normalized("ae\u0301b\u0307\u0323c", false, true), "a\u00e9\u1e05\u0307c");
  EXPECT_EQ(normalized("\u0301e\u0301 \u00e9", false, false), "\u0301e\u0301 e\u0301");
  EXPECT_EQ(normalized("x\ufb01t\u0301\u00b2", true, true), "xfit\u03012");
  EXPECT_EQ(normalized("\u1112\u1161\u11abA\u030a", false, true), "\ud55c\u00c5");
  EXPECT_EQ(normalized("plain ASCII", false, true), "plain ASCII");
  EXPECT_EQ(normalized("", true, false), "");
}

}  // namespace
}  // namespace headwater::text
