// Time as a dependency: the engine reads a Clock, simulations pass a ManualClock.
#pragma once

#include <chrono>
#include <cstdint>

namespace headwater {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;  // monotonic; the origin is arbitrary
};

class SystemClock final : public Clock {
 public:
  int64_t now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance_ns(int64_t nanoseconds) { now_ns_ += nanoseconds; }

 private:
  int64_t now_ns_ = 0;
};

}  // namespace headwater
