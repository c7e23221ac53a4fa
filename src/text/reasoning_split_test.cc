#include "text/reasoning_split.h"

#include <gtest/gtest.h>

#include <utility>

namespace headwater::text {
namespace {

using Parts = std::pair<std::string, std::string>;  // reasoning, content

Parts split(std::string_view text, size_t piece, bool opened) {
  ReasoningSplit splitter(opened);
  Parts parts;
  for (size_t i = 0; i < text.size(); i += piece) splitter.feed(text.substr(i, piece), parts.first, parts.second);
  splitter.finish(parts.first, parts.second);
  return parts;
}

TEST(ReasoningSplit, SeparatesTheFirstBlockWhateverThePieces) {
  struct Case {
    std::string_view text;
    bool opened;
    Parts parts;
  };
  for (const Case& c : {
           Case{"<think>\nhm\n</think>\n\nYes.", false, {"\nhm\n", "\n\nYes."}},
           Case{" \n<think>a</think>b", false, {"a", "b"}},
           Case{"a</think>b", true, {"a", "b"}},
           Case{"<think>a</think>b", true, {"a", "b"}},                        // the tag again
           Case{"a</think>b", false, {"", "a</think>b"}},                      // no block was opened
           Case{"Say <think>a</think>", false, {"", "Say <think>a</think>"}},  // not at the start
           Case{"<think>a</think>b<think>c</think>", false, {"a", "b<think>c</think>"}},
           Case{"<think>a<think>b</think>c", false, {"a<think>b", "c"}},
           Case{"<think>a < b </ think></thin", false, {"a < b </ think></thin", ""}},  // never closed
           Case{"<<think>a</think>", false, {"", "<<think>a</think>"}},
           Case{"<</think>é", true, {"<", "é"}},
           Case{"</think>b", true, {"", "b"}},
           Case{"<thin", false, {"", "<thin"}},
           Case{"<thin", true, {"<thin", ""}},
           Case{" \n ", false, {"", " \n "}},
           Case{" \nx", true, {" \nx", ""}},
           Case{"", false, {"", ""}},
       }) {
    for (size_t piece = 1; piece <= c.text.size() + 1; ++piece) {
      EXPECT_EQ(split(c.text, piece, c.opened), c.parts) << c.text << " in pieces of " << piece;
    }
  }
}

TEST(ReasoningSplit, HoldsBackOnlyWhatCouldBecomeATag) {
  ReasoningSplit splitter(true);
  std::string reasoning, content;
  splitter.feed("one two</th", reasoning, content);
  EXPECT_EQ(reasoning, "one two");
  splitter.feed("e end", reasoning, content);
  EXPECT_EQ(reasoning, "one two</the end");
  splitter.feed("</think>x", reasoning, content);
  splitter.feed("<", reasoning, content);
  EXPECT_EQ(content, "x<");
}

}  // namespace
}  // namespace headwater::text
