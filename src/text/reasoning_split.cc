#include "text/reasoning_split.h"

#include <algorithm>

namespace headwater::text {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

// Length of the longest suffix of `text` that is a proper prefix of `tag`.
size_t partial_tag(std::string_view text, std::string_view tag) {
  size_t length = std::min(text.size(), tag.size() - 1);
  while (!text.ends_with(tag.substr(0, length))) --length;
  return length;
}

}  // namespace

bool ReasoningSplit::find_start() {
  const size_t begin = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
  const std::string_view front = std::string_view(held_).substr(begin, kOpen.size());
  if (front == kOpen) {
    held_.erase(0, begin + kOpen.size());
    place_ = Place::kReasoning;
    return true;
  }
  if (kOpen.starts_with(front)) return false;
  place_ = opened_ ? Place::kReasoning : Place::kContent;
  return true;
}

void ReasoningSplit::feed(std::string_view text, std::string& reasoning, std::string& content) {
  if (place_ == Place::kContent) {
    content += text;
    return;
  }
  held_ += text;
  if (place_ == Place::kStart && !find_start()) return;
  if (place_ == Place::kReasoning) {
    const size_t close = held_.find(kClose);
    const size_t end = close == std::string::npos ? held_.size() - partial_tag(held_, kClose) : close;
    reasoning.append(held_, 0, end);
    held_.erase(0, end);
    if (close == std::string::npos) return;
    held_.erase(0, kClose.size());
    place_ = Place::kContent;
  }
  content += held_;
  held_.clear();
}

void ReasoningSplit::finish(std::string& reasoning, std::string& content) {
  const bool is_reasoning = place_ == Place::kReasoning || (place_ == Place::kStart && opened_);
  (is_reasoning ? reasoning : content) += held_;
  held_.clear();
}

}  // namespace headwater::text
