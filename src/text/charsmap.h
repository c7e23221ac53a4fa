// SentencePiece's compiled normalisation map ("precompiled_charsmap"): a double array over bytes that leads from strings to
// their replacements. Untrusted bytes; every index is checked where it is used.
//
//   | bytes of the array, u32 | array of u32 units | replacements, each ended by a zero byte |
//
// A unit holds its label (bits 0 to 7), whether a string ends at it (bit 8), and the offset of its children (bits 10 to 30,
// times 256 with bit 9). Source: Yata, darts-clone (the double array); sentencepiece src/normalizer.cc (the layout).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::text {

class Charsmap {
 public:
  // kCorrupt when the sizes do not fit.
  static Result<Charsmap> create(std::string_view bytes);

  // is_longest_prefix: at each position the longest string of the map, as SentencePiece does. Otherwise, as the package
  // `tokenizers` does: a grapheme of less than six bytes, or each character of a longer one, becomes what the shortest
  // string that it begins with stands for.
  // Valid UTF-8 in and out; a result of more than bytes_max bytes may be cut there.
  std::string apply(std::string_view text, bool is_longest_prefix, size_t bytes_max) const;

 private:
  struct Found {
    size_t bytes = 0;  // 0: none
    std::string_view replacement;
  };
  Found find(std::string_view text, bool longest) const;
  uint32_t unit(size_t index) const { return index < units_.size() ? units_[index] : 0; }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace headwater::text
