// What the short pieces of a text became, so that their next time is one look: a table in which the last piece of its place
// counts. A piece is known together with the step that it waited for (piece_encoder.h): what becomes of it depends on
// nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::text {

class KnownPieces {
 public:
  // Room in proportion to the text that is to come: 256 KiB at most, none for some words.
  void open(size_t text_bytes);

  bool can_keep(std::string_view piece) const {
    return !places_.empty() && !piece.empty() && piece.size() <= kBytesMax;
  }
  // Of a piece that can be kept: appends what it became, where that is known.
  bool recall(std::string_view piece, size_t step, std::vector<TokenId>& out) const;
  void keep(std::string_view piece, size_t step, std::span<const TokenId> ids);

 private:
  static constexpr size_t kBytesMax = 16;
  static constexpr size_t kPlacesMax = 4096;

  struct alignas(64) Place {  // one cache line
    uint64_t head = 0;        // the first and the last bytes, which may overlap: with their number they say all of them
    uint64_t tail = 0;
    uint16_t label = 0;  // number of bytes, step; 0: nothing is kept here
    uint16_t count = 0;
    TokenId ids[11];

    bool is_of(const Place& other) const { return head == other.head && tail == other.tail && label == other.label; }
  };

  static Place without_ids(std::string_view piece, size_t step);
  size_t index_of(const Place& place) const;

  std::vector<Place> places_;  // a power of two
};

}  // namespace headwater::text
