// The one comparison of the tests: every number that a back end computes is held against double-precision truth here.
//
// An element passes when NaN and infinities stand where they should and |got - want| <= absolute + relative * |want|;
// the whole also has to point the same way (cosine). A failure names the worst element and the seed that reproduces it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/core.h"

namespace headwater::testing {

struct Tolerance {
  double absolute;
  double relative;
  double cosine_min;

  Tolerance scaled(double factor) const {
    return {absolute * factor, relative * factor, 1 - (1 - cosine_min) * factor * factor};
  }
};

// The one table. Inputs are drawn so that results have a magnitude near 1; sums grow in error with the root of their
// length, counted from 4,096 terms.
//   F32          arithmetic in f32: a few dozen roundings of 2^-24
//   F16, BF16    one operand rounded to 8 bits (BF16 dot instructions round q, probabilities or activations too)
//   F8_E4M3      keys and values as stored are exact in every wider type; q and probabilities times a value's scale are
//                rounded as for BF16. The product is rounded but not the probability in the denominator, so one key's
//                error of 2^-9 does not cancel: still inside what a rounding to 8 bits is allowed
//   Q8_0, Q4_x   activations rounded to 8-bit integers in blocks of 32: a step of max|x| / 127, which for normal inputs
//   is
//                a standard deviation of 0.0055 of the product of the norms of x and the weight's row; seven deviations
inline Tolerance tolerance_for(DType dtype, uint64_t reduction) {
  const double growth = std::sqrt(std::max(1.0, static_cast<double>(reduction) / 4096));
  switch (dtype) {
    case DType::kF32:
      return Tolerance{2e-5, 2e-5, 1 - 1e-8}.scaled(growth);
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
      return Tolerance{5e-3, 5e-3, 1 - 1e-4}.scaled(growth);
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      return {0.04, 0, 1 - 1e-4};
    default:  // decoded to f32 before a product
      return tolerance_for(DType::kF32, reduction);
  }
}

template <typename Want>
::testing::AssertionResult near(std::span<const float> got, std::span<const Want> want, const Tolerance& tolerance,
                                uint64_t seed, const std::string& what = "") {
  const std::string context = fmt::format("{} (seed {})", what, seed);
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << context << ": " << got.size() << " values instead of " << want.size();
  }
  double worst = 0, dot = 0, got_squares = 0, want_squares = 0;
  size_t worst_at = 0, outside = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = want[i];
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
      return ::testing::AssertionFailure() << context << ": [" << i << "] is " << a << " instead of " << b;
    }
    const double excess = std::fabs(a - b) / (tolerance.absolute + tolerance.relative * std::fabs(b));
    if (excess > 1) ++outside;
    if (excess > worst) worst = excess, worst_at = i;
    dot += a * b;
    got_squares += a * a;
    want_squares += b * b;
  }
  if (outside > 0) {
    return ::testing::AssertionFailure() << context << ": " << outside << " of " << got.size()
                                         << " outside the tolerance, worst [" << worst_at << "] is " << got[worst_at]
                                         << " instead of " << want[worst_at] << ", " << worst
                                         << " times the allowed error";
  }
  const double norms = std::sqrt(got_squares * want_squares);
  if (norms > 0 && dot / norms < tolerance.cosine_min) {
    return ::testing::AssertionFailure() << context << ": cosine " << dot / norms << " below " << tolerance.cosine_min;
  }
  return ::testing::AssertionSuccess() << context << ": worst [" << worst_at << "] at " << worst
                                       << " of the allowed error";
}

template <typename Want>
::testing::AssertionResult near(const std::vector<float>& got, const std::vector<Want>& want,
                                const Tolerance& tolerance, uint64_t seed, const std::string& what = "") {
  return near(std::span<const float>(got), std::span<const Want>(want), tolerance, seed, what);
}

// The same bits, NaN and signed zeros included.
inline ::testing::AssertionResult same_bits(const std::vector<float>& got, const std::vector<float>& want,
                                            uint64_t seed, const std::string& what = "") {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << what << ": " << got.size() << " values instead of " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) {
      return ::testing::AssertionFailure()
             << what << " (seed " << seed << "): [" << i << "] is " << fmt::format("{:a}", got[i]) << " instead of "
             << fmt::format("{:a}", want[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace headwater::testing
