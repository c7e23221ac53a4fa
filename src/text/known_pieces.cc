#include "text/known_pieces.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headwater::text {
namespace {

template <typename Word>
uint64_t load(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

void KnownPieces::open(size_t text_bytes) {
  places_.resize(std::min(std::bit_floor(text_bytes / 16), kPlacesMax));
}

KnownPieces::Place KnownPieces::without_ids(std::string_view piece, size_t step) {
  Place place;
  const char* first = piece.data();
  const char* end = first + piece.size();
  if (piece.size() >= 8) {
    place.head = load<uint64_t>(first);
    place.tail = load<uint64_t>(end - 8);
  } else if (piece.size() >= 4) {
    place.head = load<uint32_t>(first);
    place.tail = load<uint32_t>(end - 4);
  } else {
    place.head = load<uint8_t>(first) << 8 | load<uint8_t>(first + piece.size() / 2);
    place.tail = load<uint8_t>(end - 1);
  }
  place.label = static_cast<uint16_t>(piece.size() << 8 | step);
  return place;
}

size_t KnownPieces::index_of(const Place& place) const {
  const auto product = static_cast<unsigned __int128>(place.head ^ 0x9E3779B97F4A7C15u) *
                       (place.tail ^ 0xBF58476D1CE4E5B9u ^ place.label);
  return static_cast<size_t>(product ^ product >> 64) & (places_.size() - 1);
}

bool KnownPieces::recall(std::string_view piece, size_t step, std::vector<TokenId>& out) const {
  const Place wanted = without_ids(piece, step);
  const Place& place = places_[index_of(wanted)];
  if (!place.is_of(wanted)) return false;
  out.insert(out.end(), place.ids, place.ids + place.count);
  return true;
}

void KnownPieces::keep(std::string_view piece, size_t step, std::span<const TokenId> ids) {
  if (ids.size() > std::size(Place{}.ids)) return;
  Place place = without_ids(piece, step);
  place.count = static_cast<uint16_t>(ids.size());
  std::copy(ids.begin(), ids.end(), place.ids);
  places_[index_of(place)] = place;
}

}  // namespace headwater::text
