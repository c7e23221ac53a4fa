// What one rendering may cost. Work and memory only ever grow, so that whatever a template does, it ends soon and stays
// small: the bytes of all values ever built bound the bytes that are alive.
#pragma once

#include <ctime>
#include <string_view>

#include "text/jinja/position.h"

namespace headwater::text::jinja {

class Budget {
 public:
  // What helps where a limit is reached: a part of messages.
  static constexpr std::string_view kRemedy = "send less text, or use a template that does less";

  Budget(uint64_t steps, uint64_t memory_bytes)
      : steps_(steps), steps_max_(steps), memory_(memory_bytes), memory_max_(memory_bytes) {}

  // One evaluated node, or the scan of some text: 64 bytes count as a step.
  Status step(Position where, uint64_t scanned_bytes = 0) {
    const uint64_t cost = 1 + scanned_bytes / 64;
    if (cost > steps_) {
      return error_at(where, ErrorCode::kExhausted, "the template takes more than {} steps; {}", steps_max_, kRemedy);
    }
    steps_ -= cost;
    return {};
  }

  Status build(Position where, uint64_t bytes) {
    if (bytes > memory_) {
      return error_at(where, ErrorCode::kExhausted, "the template builds more than {} bytes of values; {}", memory_max_,
                      kRemedy);
    }
    memory_ -= bytes;
    return {};
  }

 private:
  uint64_t steps_;
  uint64_t steps_max_;
  uint64_t memory_;
  uint64_t memory_max_;
};

// Where in the template something is evaluated, and what it may use.
struct Call {
  Position where;
  Budget& budget;
  const std::tm& now;  // what strftime_now() tells

  Status step(uint64_t scanned_bytes = 0) const { return budget.step(where, scanned_bytes); }
  Status build(uint64_t bytes) const { return budget.build(where, bytes); }
  // Text that is taken apart into characters, which is slower than a scan.
  Status rewrite(uint64_t bytes) const { return budget.step(where, bytes * 8); }
  template <typename... Args>
  Status wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return error_at(where, ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  Status unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    return error_at(where, ErrorCode::kUnsupported, format, std::forward<Args>(args)...);
  }
};

}  // namespace headwater::text::jinja
