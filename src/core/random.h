// Philox4x32-10, a counter-based generator: the same (key, counter) gives the same 128 bits on every machine, so a draw
// needs no state and does not depend on what was drawn before.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace headwater {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A stream of draws from one seed, for tests, fuzzers and benches. Satisfies UniformRandomBitGenerator.
class Random {
 public:
  using result_type = uint32_t;
  explicit Random(uint64_t seed) : seed_(seed) {}
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return 0xffffffffu; }
  uint32_t operator()();
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(uint64_t{(*this)()} * bound >> 32); }  // [0, bound)
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }                // both included
  float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24f; }                            // [0, 1)
  float normal();  // mean 0, deviation 1

 private:
  uint64_t seed_;
  uint64_t draws_ = 0;
};

}  // namespace headwater
