#include "bench/serve/exposition.h"

#include <gtest/gtest.h>

namespace headwater::bench::serve {
namespace {

constexpr const char* kPage =
    "# HELP headwater:attention_steps_total Steps.\n"
    "# TYPE headwater:attention_steps_total counter\n"
    "headwater:attention_steps_total{model_name=\"a\",path=\"flat\"} 3\n"
    "headwater:attention_steps_total{model_name=\"a\", path=\"shared\"} 1.2e3 1700000000000\n"
    "odd{label=\"a \\\"b\\\" \\\\ {}, \\n\"} 4\r\n"
    "plain 0.5\n"
    "headwater:attention_steps 99\n"
    "not a number x\n"
    "open{label=\"x\n"
    "\n"
    "last{} 7";

TEST(Exposition, SumsTheSamplesOfALabelValue) {
  const Exposition page = Exposition::parse(kPage);
  EXPECT_EQ(page.sum("headwater:attention_steps_total", "path", "flat"), 3);
  EXPECT_EQ(page.sum("headwater:attention_steps_total", "path", "shared"), 1200);
  EXPECT_EQ(page.sum("headwater:attention_steps_total", "path", "mixed"), 0);
  EXPECT_EQ(page.sum("headwater:attention_steps_total"), 1203);
  EXPECT_EQ(page.sum("plain"), 0.5);
  EXPECT_EQ(page.sum("last"), 7);
}

TEST(Exposition, ReadsEscapedLabels) {
  EXPECT_EQ(Exposition::parse(kPage).sum("odd", "label", "a \"b\" \\ {}, \n"), 4);
}

TEST(Exposition, LeavesOutWhatIsNoSample) {
  const Exposition page = Exposition::parse(kPage);
  EXPECT_TRUE(page.has("plain"));
  EXPECT_FALSE(page.has("not"));
  EXPECT_FALSE(page.has("open"));
  EXPECT_FALSE(page.has("HELP"));
  EXPECT_FALSE(Exposition::parse("{} 1\n{\n{=\"").has(""));
}

}  // namespace
}  // namespace headwater::bench::serve
