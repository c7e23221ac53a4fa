// Ends a text before the stop string that is complete first, however the text is cut into pieces; of those that end at
// the same byte the longest counts. Holds back exactly the bytes that could still become a stop string: the longest
// suffix that is a proper prefix of one of them. Where text and stops are valid UTF-8, so is each piece given out: what is
// held begins with the first byte of a stop.
//
// A byte costs O(1) per stop whatever the stops are: failure links, Knuth, Morris, Pratt, "Fast Pattern Matching in
// Strings", SIAM J. Comput. 6(2), 1977. Copies share the stops and their links.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headwater::text {

class StopStrings {
 public:
  StopStrings() = default;                      // none: all text passes
  StopStrings(std::vector<std::string> stops);  // none empty; implicit, so that a list can stand for its matcher

  // Appends to `out` what is certain to precede any stop string. true: a stop string was found; the text has ended.
  bool feed(std::string_view text, std::string& out);
  void finish(std::string& out);  // the text ends here: gives out what was held back

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> links;  // [text.size()]: longest proper suffix of text[0, i] that is a prefix of text
  };
  static bool advance(const Pattern& pattern, char byte, uint32_t& matched);  // true: the whole pattern ends here

  std::shared_ptr<const std::vector<Pattern>> patterns_;  // null: none
  std::vector<uint32_t> matched_;                         // by pattern: bytes of it that end the text so far
  std::string held_;
};

}  // namespace headwater::text
