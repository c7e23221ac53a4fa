// Logging through spdlog, and the rule that keeps it quiet: one line per kind of outcome.
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>

namespace headwater::observe {

// true the first time it is asked about a kind (0..63), false ever after. Any thread.
class OncePerKind {
 public:
  bool first(uint32_t kind) {
    const uint64_t bit = uint64_t{1} << (kind & 63);
    return (seen_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }

 private:
  std::atomic<uint64_t> seen_{0};
};

// The project's own logger: standard error, level warn until set_log_level(). A program that installs a default spdlog logger
// named "headwater" replaces it.
spdlog::logger& logger();

// level: trace, debug, info, warn, error, off.
bool set_log_level(const char* level);  // false when the name is unknown

}  // namespace headwater::observe
