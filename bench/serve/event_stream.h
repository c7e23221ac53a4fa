// Server-sent events: bytes in, cut anywhere, the data of whole events out.
// Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream". Field names other than data are read over.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace headwater::bench::serve {

class EventStream {
 public:
  static constexpr size_t kEventBytesMax = 16u << 20;
  using OnEvent = std::function<void(std::string_view data)>;

  // False: an event grew over kEventBytesMax. An event's data lines are joined by '\n'.
  bool feed(std::string_view bytes, const OnEvent& on_event);

 private:
  void end_line(const OnEvent& on_event);

  std::string line_, data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a '\n' now belongs to the '\r' before it
};

}  // namespace headwater::bench::serve
