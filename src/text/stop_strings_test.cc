#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/core.h"
#include "text/utf8.h"

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

TEST(StopStrings, EndBeforeTheFirstCompleteStopWhateverThePieces) {
  for (size_t piece = 1; piece <= 20; ++piece) {
    EXPECT_EQ(run({"END", "STOP"}, "one STO two STOP three END", piece), std::pair(std::string("one STO two "), true));
    EXPECT_EQ(run({"aab"}, "aaaab tail", piece), std::pair(std::string("aa"), true));
    EXPECT_EQ(run({"\n\n"}, "a\nb\n\nc", piece), std::pair(std::string("a\nb"), true));
    EXPECT_EQ(run({"xyz"}, "wxy", piece), std::pair(std::string("wxy"), false));
    EXPECT_EQ(run({}, "anything", piece), std::pair(std::string("anything"), false));
    EXPECT_EQ(run({"abcd", "bc"}, "xabcd", piece), std::pair(std::string("xa"), true));    // complete first
    EXPECT_EQ(run({"c", "bc", "abc"}, "xabc", piece), std::pair(std::string("x"), true));  // complete together
    EXPECT_EQ(run({"é!"}, "éé!", piece), std::pair(std::string("é"), true));
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

// The definition, over the whole text: where the answer ends, if a stop is complete in it.
std::optional<size_t> end_before_stop(const std::vector<std::string>& stops, std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return end - longest;
  }
  return std::nullopt;
}

size_t longest_partial_stop(const std::vector<std::string>& stops, std::string_view text) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t length = 1; length < stop.size(); ++length) {
      if (text.ends_with(stop.substr(0, length))) longest = std::max(longest, length);
    }
  }
  return longest;
}

std::string random_text(Random& random, size_t characters) {
  static constexpr std::string_view kAlphabet[] = {"a", "b", "a", "b", "\n", "é", "字", "😀"};
  const uint32_t letters = random.below(2) == 0 ? 2 : 8;  // few letters: many partial matches
  std::string text;
  for (size_t i = 0; i < characters; ++i) text += kAlphabet[random.below(letters)];
  return text;
}

TEST(StopStrings, AgreeWithTheDefinitionOnRandomTextsAndCuts) {
  Random random(5);
  int found = 0, whole = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops(1 + random.below(4));
    for (std::string& stop : stops) stop = random_text(random, 1 + random.below(6));
    const std::string text = random_text(random, random.below(30));
    const std::optional<size_t> end = end_before_stop(stops, text);
    StopStrings matcher(stops);
    std::string out;
    bool stopped = false;
    size_t at = 0;
    while (at < text.size() && !stopped) {
      size_t piece = 0;  // whole characters, as a detokenizer gives them
      for (uint32_t i = 1 + static_cast<uint32_t>(random.below(4)); i > 0 && at + piece < text.size(); --i) {
        piece += first_character(std::string_view(text).substr(at + piece)).bytes;
      }
      stopped = matcher.feed(std::string_view(text).substr(at, piece), out);
      at += piece;
      ASSERT_TRUE(is_valid_utf8(out)) << text;
      if (!stopped) {
        ASSERT_EQ(out.size(), at - longest_partial_stop(stops, text.substr(0, at))) << text;
      }
    }
    if (!stopped) matcher.finish(out);
    ASSERT_EQ(stopped, end.has_value()) << text;
    ASSERT_EQ(out, text.substr(0, end.value_or(text.size()))) << text;
    ++(stopped ? found : whole);
  }
  EXPECT_GT(found, 1'000);
  EXPECT_GT(whole, 1'000);
}

TEST(StopStrings, CopiesShareTheStopsButNotTheText) {
  const StopStrings stops({"END"});
  StopStrings one = stops, two = stops;
  std::string out;
  EXPECT_FALSE(one.feed("EN", out));
  EXPECT_FALSE(two.feed("D", out));
  EXPECT_EQ(out, "D");
  EXPECT_TRUE(one.feed("D", out));
}

}  // namespace
}  // namespace headwater::text
