#include "bench/serve/event_stream.h"

#include <algorithm>

namespace headwater::bench::serve {

bool EventStream::feed(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    if (after_return_ && bytes[0] == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    if (line_.size() + data_.size() > kEventBytesMax) return false;
    if (end == std::string_view::npos) return true;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(on_event);
  }
  return true;
}

void EventStream::end_line(const OnEvent& on_event) {
  if (line_.empty()) {
    if (has_data_) on_event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = std::min(line_.find(':'), line_.size());
  if (std::string_view(line_).substr(0, colon) == "data") {
    size_t value = std::min(colon + 1, line_.size());
    if (value < line_.size() && line_[value] == ' ') ++value;
    if (has_data_) data_ += '\n';
    data_.append(line_, value);
    has_data_ = true;
  }
  line_.clear();
}

}  // namespace headwater::bench::serve
