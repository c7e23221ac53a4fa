// The one inner loop: a dot product in double with a fixed summation order.
#pragma once

#include <cstddef>

namespace headwater::backend::reference {

// Eight interleaved sums, so that the compiler vectorises without reordering anything on its own.
inline double dot(const double* a, const double* b, size_t count) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (size_t lane = 0; i + lane < count; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace headwater::backend::reference
