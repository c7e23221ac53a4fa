// Passes over a row of logits, 64 at a time, in vector instructions that every processor of its kind has. Products and
// sums are never fused (CMakeLists.txt) and the exponential is the one below: a row's weights have the same bits on every
// machine, whatever its instructions and its C library. Weights are whole numbers of 2^-44, so their sums are exact: they
// have no order, and a device may add and search them as suits it (backend/cuda/sampling).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace headwater::ops {

inline constexpr size_t kLogitBlock = 64;
using LogitBlock = std::array<float, kLogitBlock>;

inline constexpr int kWeightBits = 44;             // the peak weighs 2^44
inline constexpr size_t kVocabularyMax = 1 << 19;  // whose weights' sum fits 64 bits, with room
using WeightBlock = std::array<uint64_t, kLogitBlock>;

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
// where floats lose digits, and for a NaN it is 0.
LogitBlock exp_block(const LogitBlock& values);

// What the tokens of a block weigh: exp_block() of the relative logits, in units of 2^-44, rounded to nearest even.
WeightBlock weigh_block(const LogitBlock& relative);

// The weights of each block, summed, into sums [logit_blocks]; returns the sum of these.
uint64_t sum_weights(std::span<const float> logits, const Relative& relative, std::span<uint64_t> sums);

}  // namespace headwater::ops
