// Byte-pair encoding of one word: repeatedly joins the adjacent pair of lowest rank, the leftmost of equals, until no
// pair has a rank. Symbols are at first single bytes (byte-level vocabularies) or single characters. Of few the best pair is
// looked for in all of them, of many it comes from a heap over a linked list: O(n log n) in the word's bytes.
//
// Two short cuts, both exact. A word that is itself a token, and that the merges make of it, is looked up: whether they do is
// found out at the word's first use and kept in one byte a token (nothing grows; a race writes the same value twice). Where
// no merge joins a byte with the one behind it, a word of characters is cut between the two, since no merge reaches across.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "text/merge_table.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace headwater::text {

class Bpe {
 public:
  // Working space of one thread, kept between words.
  struct Scratch {
    struct Symbol {
      TokenId id;
      uint32_t length;  // in symbols as they were at first; 0: joined to the one on its left
      uint32_t left;
      uint32_t right;
    };
    struct Candidate {
      uint32_t rank;
      uint32_t left;    // index of the left symbol
      uint32_t length;  // of both symbols; the candidate is stale when they have changed since
      TokenId joined;
    };
    std::vector<TokenId> ids;  // of the word
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // The vocabulary outlives the Bpe. kCorrupt when a merge names a token that the vocabulary does not have. A merge that
  // makes a token which is not ordinary (a control token) is left out: text never becomes one.
  static Result<Bpe> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Calls visit(part) for the parts of a word that no merge joins; their ids side by side are the word's.
  template <typename Visit>
  void each_part(std::string_view word, Visit visit) const {
    size_t begin = 0;
    for (size_t at = 1; !joins_.empty() && at < word.size(); ++at) {
      if (!parts(word[at - 1], word[at])) continue;
      visit(word.substr(begin, at - begin));
      begin = at;
    }
    visit(word.substr(begin));
  }

  // Appends the ids of a word, or of a part of one. A byte or character that the vocabulary has no token for gives its bytes' tokens, the
  // unknown token, or none, as the vocabulary says.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  enum Whole : uint8_t { kNotKnown, kMade };  // whether the merges make a token of its own content

  Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary);
  Status add_merges(const TokenizerSpec& spec);
  Status add_all_joins(const TokenizerSpec& spec);
  // Whether no merge joins the bytes, which end a character and begin another.
  bool parts(char before, char after) const { return !is_continuation(after) && !joins_[border(before, after)]; }
  static bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }
  static size_t border(char before, char after) {
    return static_cast<size_t>(static_cast<uint8_t>(before)) << 8 | static_cast<uint8_t>(after);
  }
  // Of what is joined; a byte's token stands for its character where that is no token itself.
  TokenId part(std::string_view content) const;
  void add_join(std::string_view left, std::string_view right, MergeTable::Merge merge);
  void encode_by_merges(std::string_view word, TokenId whole, Scratch& scratch, std::vector<TokenId>& out) const;
  void fill(std::string_view word, std::vector<TokenId>& ids) const;
  void merge_few(std::vector<TokenId>& ids) const;
  void merge_many(Scratch& scratch) const;
  void offer(Scratch& scratch, uint32_t left) const;

  const Vocabulary* vocabulary_;
  bool is_byte_level_;
  bool fuses_unknown_;
  bool ignores_merges_;
  bool has_byte_tokens_ = false;  // all 256
  TokenId unknown_;
  std::array<TokenId, 256> first_ids_{};  // of a single byte (byte-level), or of a single ASCII character
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<bool> joins_;  // [last byte << 8 | first byte behind it]: some merge joins the two; empty: no word is cut
  MergeTable merges_;
  std::unique_ptr<std::atomic<Whole>[]> whole_;  // one a token
};

}  // namespace headwater::text
