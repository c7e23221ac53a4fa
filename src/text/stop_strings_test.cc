#include "text/stop_strings.h"

#include <gtest/gtest.h>

namespace headwater::text {
namespace {

// Feeds `text` in pieces of the given size; returns what came out and whether a stop was found.
std::pair<std::string, bool> run(const std::vector<std::string>& stops, std::string_view text, size_t piece) {
  StopStrings matcher(stops);
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) {
    if (matcher.feed(text.substr(i, piece), out)) return {out, true};
  }
  matcher.finish(out);
  return {out, false};
}

TEST(StopStrings, EndBeforeTheEarliestMatchWhateverThePieces) {
  for (size_t piece = 1; piece <= 20; ++piece) {
    EXPECT_EQ(run({"END", "STOP"}, "one STO two STOP three END", piece), std::pair(std::string("one STO two "), true));
    EXPECT_EQ(run({"aab"}, "aaaab tail", piece), std::pair(std::string("aa"), true));
    EXPECT_EQ(run({"\n\n"}, "a\nb\n\nc", piece), std::pair(std::string("a\nb"), true));
    EXPECT_EQ(run({"xyz"}, "wxy", piece), std::pair(std::string("wxy"), false));
    EXPECT_EQ(run({}, "anything", piece), std::pair(std::string("anything"), false));
  }
}

TEST(StopStrings, HoldBackOnlyWhatCouldBecomeAStop) {
  StopStrings matcher({"Observation:"});
  std::string out;
  EXPECT_FALSE(matcher.feed("text Obs", out));
  EXPECT_EQ(out, "text ");
  EXPECT_FALSE(matcher.feed("olete", out));
  EXPECT_EQ(out, "text Obsolete");
}

}  // namespace
}  // namespace headwater::text
