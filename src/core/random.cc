#include "core/random.h"

#include <cmath>
#include <numbers>

namespace headwater {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * c[0];
    const uint64_t b = uint64_t{0xcd9e8d57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return c;
}

uint32_t Random::operator()() {
  const auto key = std::array{static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
  const auto counter = std::array{static_cast<uint32_t>(draws_ >> 2), static_cast<uint32_t>(draws_ >> 34), 0u, 0u};
  return philox4x32(counter, key)[draws_++ & 3];
}

float Random::normal() {  // Box-Muller
  const float radius = std::sqrt(-2.0f * std::log(1.0f - uniform()));
  return radius * std::cos(2.0f * std::numbers::pi_v<float> * uniform());
}

}  // namespace headwater
