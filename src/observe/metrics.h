// Typed values that the engine counts and others read: monotonic counters, gauges, histograms with fixed bounds.
//
// One writer (the engine thread), any readers. Every access is a relaxed atomic: a reader sees each value whole, not all
// values of one instant. Nothing here allocates after construction.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace headwater::observe {

class Counter {
 public:
  void add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Upper bounds (inclusive) are a constant of the owner; the last bucket is open.
template <size_t kBounds>
class Histogram {
 public:
  explicit Histogram(const std::array<double, kBounds>& bounds) : bounds_(bounds) {}
  void observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    buckets_[static_cast<size_t>(bucket)].add();
    sum_.store(sum_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
  const std::array<double, kBounds>& bounds() const { return bounds_; }
  uint64_t bucket(size_t index) const { return buckets_[index].value(); }  // index <= kBounds; not cumulative
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  uint64_t count() const {
    uint64_t total = 0;
    for (const auto& bucket : buckets_) total += bucket.value();
    return total;
  }

 private:
  std::array<double, kBounds> bounds_;
  std::array<Counter, kBounds + 1> buckets_;
  std::atomic<double> sum_{0};
};

}  // namespace headwater::observe
