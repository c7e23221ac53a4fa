#include "kv/sip_hash.h"

#include <bit>
#include <cstring>

namespace headwater::kv {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

SipHash128::SipHash128(const uint64_t (&key)[2])
    : v0_(key[0] ^ 0x736f6d6570736575u),
      v1_(key[1] ^ 0x646f72616e646f6du ^ 0xee),
      v2_(key[0] ^ 0x6c7967656e657261u),
      v3_(key[1] ^ 0x7465646279746573u) {}

Hash128 SipHash128::finish(std::span<const std::byte> rest) {
  for (; rest.size() >= 8; rest = rest.subspan(8)) {
    uint64_t word;
    std::memcpy(&word, rest.data(), 8);
    add(word);
  }
  uint64_t last = (bytes_ + rest.size()) << 56;
  for (size_t i = 0; i < rest.size(); ++i) last |= std::to_integer<uint64_t>(rest[i]) << (8 * i);
  add(last);
  v2_ ^= 0xee;
  rounds(4);
  const uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
  v1_ ^= 0xdd;
  rounds(4);
  return {low, v0_ ^ v1_ ^ v2_ ^ v3_};
}

}  // namespace headwater::kv
