// Medians and their confidence, without assuming a distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace headwater::bench {

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Interval {
  double low, high;
};

// 95% interval of the median by order statistics: the ranks n/2 -+ 0.98 sqrt(n). Wide open below 6 values.
inline Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double reach = 0.98 * std::sqrt(n);
  if (values.size() < 6) return {values.front(), values.back()};
  const auto low = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - reach)));
  const auto high = static_cast<size_t>(std::min(n - 1, std::ceil(n / 2 + reach)));
  return {values[low], values[high]};
}

}  // namespace headwater::bench
