#include "text/stop_strings.h"

#include <algorithm>

namespace headwater::text {
namespace {

// Length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t partial_match(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

bool StopStrings::feed(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return false;
  }
  held_ += text;
  size_t match = std::string::npos;
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    match = std::min(match, held_.find(stop));
    keep = std::max(keep, partial_match(held_, stop));
  }
  if (match != std::string::npos) {
    out.append(held_, 0, match);
    held_.clear();
    return true;
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace headwater::text
