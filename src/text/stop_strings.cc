#include "text/stop_strings.h"

#include <algorithm>

#include "core/check.h"

namespace headwater::text {

StopStrings::StopStrings(std::vector<std::string> stops) {
  if (stops.empty()) return;
  std::vector<Pattern> patterns;
  for (std::string& stop : stops) {
    check(!stop.empty(), "a stop string is empty");
    Pattern pattern{std::move(stop), {0}};
    for (uint32_t i = 1, matched = 0; i < pattern.text.size(); ++i) {
      advance(pattern, pattern.text[i], matched);
      pattern.links.push_back(matched);
    }
    patterns.push_back(std::move(pattern));
  }
  matched_.resize(patterns.size());
  patterns_ = std::make_shared<const std::vector<Pattern>>(std::move(patterns));
}

bool StopStrings::advance(const Pattern& pattern, char byte, uint32_t& matched) {
  while (matched > 0 && pattern.text[matched] != byte) matched = pattern.links[matched - 1];
  if (pattern.text[matched] == byte) ++matched;
  return matched == pattern.text.size();
}

bool StopStrings::feed(std::string_view text, std::string& out) {
  if (!patterns_) {
    out += text;
    return false;
  }
  for (const char byte : text) {
    held_ += byte;
    size_t longest = 0;
    for (size_t i = 0; i < matched_.size(); ++i) {
      const Pattern& pattern = (*patterns_)[i];
      if (advance(pattern, byte, matched_[i])) longest = std::max(longest, pattern.text.size());
    }
    if (longest > 0) {
      out.append(held_, 0, held_.size() - longest);
      held_.clear();
      return true;
    }
  }
  const size_t keep = *std::max_element(matched_.begin(), matched_.end());
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace headwater::text
