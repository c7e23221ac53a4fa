#include "text/vocabulary.h"

#include <bit>
#include <cstring>

namespace headwater::text {
namespace {

// Eight bytes at a time, each folded in by a multiplication whose halves are joined.
uint64_t hash_of(std::string_view bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
  uint64_t hash = bytes.size() * 0xBF58476D1CE4E5B9u;
  const auto fold = [&](uint64_t word) {
    const auto product = static_cast<unsigned __int128>(hash ^ word) * kFactor;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  while (bytes.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    fold(word);
    bytes.remove_prefix(8);
  }
  uint64_t rest = 0;
  for (const char byte : bytes) rest = rest << 8 | static_cast<uint8_t>(byte);
  fold(rest);
  return hash;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string_view> contents)
    : contents_(std::move(contents)), slots_(std::bit_ceil(2 * contents_.size() + 2)) {
  for (size_t id = 0; id < contents_.size(); ++id) {
    if (contents_[id].empty()) continue;
    const uint64_t hash = hash_of(contents_[id]);
    slots_[slot_of(contents_[id], hash)] = {static_cast<uint32_t>(hash >> 32), static_cast<TokenId>(id)};
  }
}

size_t Vocabulary::slot_of(std::string_view content, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask;
  while (slots_[slot].id != kNoToken &&
         (slots_[slot].hash != tag || contents_[static_cast<size_t>(slots_[slot].id)] != content)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

TokenId Vocabulary::find(std::string_view content) const {
  return content.empty() ? kNoToken : slots_[slot_of(content, hash_of(content))].id;
}

}  // namespace headwater::text
