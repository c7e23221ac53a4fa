#include "ops/logit_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headwater::ops {
namespace {

// GCC's and clang's vector types: the arithmetic of each element is that of a float.
using Floats [[gnu::vector_size(16)]] = float;
using Words [[gnu::vector_size(16)]] = uint32_t;
using Doubles [[gnu::vector_size(16)]] = double;
using Units [[gnu::vector_size(16)]] = uint64_t;
constexpr size_t kLanes = sizeof(Floats) / sizeof(float);
constexpr size_t kChains = 4;  // independent maxima or sums, for instructions take several cycles
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Floats load(const float* values) {
  Floats vector;
  std::memcpy(&vector, values, sizeof(vector));
  return vector;
}

void store(Floats vector, float* values) {
  std::memcpy(values, &vector, sizeof(vector));
}

Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}

// The block's values in the row or, where the row ends inside the block, in `padded`, with -inf behind them.
const float* block_values(std::span<const float> logits, size_t block, LogitBlock& padded) {
  const size_t begin = block * kLogitBlock;
  if (begin + kLogitBlock <= logits.size()) return &logits[begin];
  const std::span<const float> rest = logits.subspan(begin);
  std::fill(std::copy(rest.begin(), rest.end(), padded.begin()), padded.end(), -kInfinity);
  return padded.data();
}

Floats exp_of(Floats x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which lands in the low bits
  const Floats clamped = larger(x, Floats{} - 87.0f);
  const Floats shifted = clamped * 1.44269504f + kRound;
  const Floats n = shifted - kRound;
  const Floats rest = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // log(2) is the first, exact, less the second
  Floats value = rest * (1.0f / 5040) + 1.0f / 720;
  value = value * rest + 1.0f / 120;
  value = value * rest + 1.0f / 24;
  value = value * rest + 1.0f / 6;
  value = value * rest + 0.5f;
  value = value * rest + 1.0f;
  value = value * rest + 1.0f;
  const Words scaled = (Words)value + ((Words)shifted << 23);  // times 2^n
  return (Floats)(scaled & (Words)(x >= -87.0f));
}

// Adding 2^8 to a weight <= 1 leaves it rounded to 2^-44 in the low bits of the double.
constexpr double kShift = 256;
static_assert(kWeightBits == 52 - 8);
constexpr uint64_t kShiftBits = std::bit_cast<uint64_t>(kShift);

Units shifted_units(const float* weights) {
  return (Units)(Doubles{weights[0], weights[1]} + kShift);
}

}  // namespace

LogitScan scan_logits(std::span<const float> logits, std::span<float> maxima) {
  LogitScan scan;
  Words broken = {};
  size_t best = 0;
  LogitBlock padded;
  for (size_t block = 0; block < logit_blocks(logits.size()); ++block) {
    const float* values = block_values(logits, block, padded);
    Floats largest[kChains];
    std::fill(largest, largest + kChains, Floats{} - kInfinity);
    for (size_t i = 0; i < kLogitBlock; i += kChains * kLanes) {
      for (size_t chain = 0; chain < kChains; ++chain) {
        const Floats vector = load(values + i + chain * kLanes);
        largest[chain] = larger(vector, largest[chain]);
        broken |= ~(Words)(vector < kInfinity);
      }
    }
    const Floats four = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
    maxima[block] = std::max(std::max(four[0], four[1]), std::max(four[2], four[3]));
    if (maxima[block] > scan.peak) {
      scan.peak = maxima[block];
      best = block;
    }
  }
  scan.is_sound = (broken[0] | broken[1] | broken[2] | broken[3]) == 0;
  scan.token = static_cast<uint32_t>(best * kLogitBlock);
  if (scan.peak > -kInfinity) {
    while (logits[scan.token] != scan.peak) ++scan.token;
  }
  return scan;
}

LogitBlock relative_block(std::span<const float> logits, size_t block, const Relative& relative) {
  LogitBlock result;
  LogitBlock padded;
  const float* values = block_values(logits, block, padded);
  for (size_t i = 0; i < kLogitBlock; i += kLanes) {
    store((load(values + i) - relative.peak) / relative.temperature, &result[i]);
  }
  return result;
}

LogitBlock exp_block(const LogitBlock& values) {
  LogitBlock result;
  for (size_t i = 0; i < kLogitBlock; i += kLanes) store(exp_of(load(&values[i])), &result[i]);
  return result;
}

WeightBlock weigh_block(const LogitBlock& relative) {
  const LogitBlock weights = exp_block(relative);
  WeightBlock result;
  for (size_t i = 0; i < kLogitBlock; i += 2) {
    const Units units = shifted_units(&weights[i]) - kShiftBits;
    std::memcpy(&result[i], &units, sizeof(units));
  }
  return result;
}

uint64_t sum_weights(std::span<const float> logits, const Relative& relative, std::span<uint64_t> sums) {
  uint64_t total = 0;
  for (size_t block = 0; block < logit_blocks(logits.size()); ++block) {
    const LogitBlock weights = exp_block(relative_block(logits, block, relative));
    Units chains[kChains] = {};
    for (size_t i = 0; i < kLogitBlock; i += 2 * kChains) {
      for (size_t chain = 0; chain < kChains; ++chain) chains[chain] += shifted_units(&weights[i + 2 * chain]);
    }
    const Units two = (chains[0] + chains[1]) + (chains[2] + chains[3]);
    sums[block] = two[0] + two[1] - kLogitBlock * kShiftBits;
    total += sums[block];
  }
  return total;
}

}  // namespace headwater::ops
