// Ends a text before the first occurrence of any stop string, however the text is cut into pieces. Holds back exactly
// the characters that could still become a stop string: the longest suffix that is a proper prefix of one of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headwater::text {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}  // none empty

  // Appends to `out` what is certain to precede any stop string. true: a stop string was found; the text has ended.
  bool feed(std::string_view text, std::string& out);
  void finish(std::string& out);  // the text ends here: gives out what was held back

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace headwater::text
