// Passes over a row of logits, 64 at a time, in vector instructions that every processor of its kind has. Products and
// sums are never fused (CMakeLists.txt), sums have a fixed order and the exponential is the one below: a row's weights
// have the same bits on every machine, whatever its instructions and its C library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace headwater::ops {

inline constexpr size_t kLogitBlock = 64;
using LogitBlock = std::array<float, kLogitBlock>;

constexpr size_t logit_blocks(size_t vocabulary) {
  return (vocabulary + kLogitBlock - 1) / kLogitBlock;
}

struct LogitScan {
  uint32_t token = 0;  // of the largest logit; the lowest of equal ones
  float peak = -std::numeric_limits<float>::infinity();
  bool is_sound = true;  // neither a NaN nor +inf was met; without, token and peak mean nothing
};

// The largest logit of a row and, into maxima [logit_blocks], of each block.
LogitScan scan_logits(std::span<const float> logits, std::span<float> maxima);

// Logits as distances from the peak in units of the temperature: <= 0, and -inf stays -inf.
struct Relative {
  float peak;
  float temperature;
  float of(float logit) const { return (logit - peak) / temperature; }
};

// The relative logits of block number `block`; past the row's end -inf.
LogitBlock relative_block(std::span<const float> logits, size_t block, const Relative& relative);

// exp of each value (<= 0) to 2e-7 of it: 2^n times a Taylor polynomial of degree 7 in |rest| <= log(2) / 2. Below -87,
// where floats lose digits, and for a NaN it is 0: beside the peak's weight, 1, no draw of 53 bits tells that from less.
LogitBlock exp_block(const LogitBlock& values);

// The weights exp(relative logit) of each block, summed, into sums [logit_blocks] f64; returns the sum of these.
double sum_weights(std::span<const float> logits, const Relative& relative, std::span<double> sums);

}  // namespace headwater::ops
