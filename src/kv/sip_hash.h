// SipHash-2-4 with 128 bits of output: a hash that nobody can aim without its key.
// Source: Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012; the wide output as in the authors'
// reference code (constants 0xee and 0xdd).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headwater::kv {

struct Hash128 {
  uint64_t low = 0;   // the first 8 bytes of the digest, little endian
  uint64_t high = 0;  // the last 8
  bool operator==(const Hash128&) const = default;
};

// Absorbs words of 8 bytes (little endian), then the rest of the message, of any length.
class SipHash128 {
 public:
  explicit SipHash128(const uint64_t (&key)[2]);
  void add(uint64_t word) {
    v3_ ^= word;
    rounds(2);
    v0_ ^= word;
    bytes_ += 8;
  }
  Hash128 finish(std::span<const std::byte> rest);  // the object is spent afterwards

 private:
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0_ += v1_;
      v2_ += v3_;
      v1_ = std::rotl(v1_, 13) ^ v0_;
      v3_ = std::rotl(v3_, 16) ^ v2_;
      v0_ = std::rotl(v0_, 32);
      v2_ += v1_;
      v0_ += v3_;
      v1_ = std::rotl(v1_, 17) ^ v2_;
      v3_ = std::rotl(v3_, 21) ^ v0_;
      v2_ = std::rotl(v2_, 32);
    }
  }
  uint64_t v0_, v1_, v2_, v3_;
  uint64_t bytes_ = 0;
};

}  // namespace headwater::kv
