// Mean and percentiles of a set of delays.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

namespace headwater::bench::serve {

struct Distribution {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;  // all 0 without values
};

// Between the two nearest ranks, linearly, as numpy and the stock clients do. `sorted` is not empty.
inline double percentile(const std::vector<double>& sorted, double percent) {
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

inline Distribution distribution(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), percentile(values, 50), percentile(values, 90),
          percentile(values, 99)};
}

}  // namespace headwater::bench::serve
