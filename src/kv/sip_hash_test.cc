#include "kv/sip_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "kv/salt.h"

namespace headwater::kv {
namespace {

constexpr uint64_t kKey[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};  // bytes 00 01 .. 0f

Hash128 digest(std::array<uint8_t, 16> bytes) {
  Hash128 hash;
  std::memcpy(&hash.low, bytes.data(), 8);
  std::memcpy(&hash.high, bytes.data() + 8, 8);
  return hash;
}

Hash128 hash_of_first_bytes(uint32_t length) {  // of 00 01 02 ..
  std::array<std::byte, 64> message;
  for (uint32_t i = 0; i < message.size(); ++i) message[i] = std::byte(i);
  return SipHash128(kKey).finish(std::span(message).first(length));
}

// The authors' vectors_sip128: key 00..0f, message 00..(length - 1).
TEST(SipHash, MatchesThePublishedVectors) {
  EXPECT_EQ(hash_of_first_bytes(0),
            digest({0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93}));
  EXPECT_EQ(hash_of_first_bytes(1),
            digest({0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45}));
  EXPECT_EQ(hash_of_first_bytes(7),
            digest({0xa1, 0xf1, 0xeb, 0xbe, 0xd8, 0xdb, 0xc1, 0x53, 0xc0, 0xb8, 0x4a, 0xa6, 0x1f, 0xf0, 0x82, 0x39}));
  EXPECT_EQ(hash_of_first_bytes(8),
            digest({0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14, 0x97, 0xb4}));
  EXPECT_EQ(hash_of_first_bytes(15),
            digest({0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9}));
}

TEST(SipHash, WordsAndBytesOfOneMessageHashAlike) {
  SipHash128 hash(kKey);
  hash.add(0x0706050403020100u);
  hash.add(0x0f0e0d0c0b0a0908u);
  EXPECT_EQ(hash.finish({}), hash_of_first_bytes(16));
}

TEST(Salt, IsZeroForNoTextAndDiffersByText) {
  EXPECT_EQ(make_salt(""), Salt{});
  EXPECT_EQ(make_salt("tenant a"), make_salt("tenant a"));
  EXPECT_FALSE(make_salt("tenant a") == make_salt("tenant b"));
  EXPECT_FALSE(make_salt("tenant a") == Salt{});
}

}  // namespace
}  // namespace headwater::kv
