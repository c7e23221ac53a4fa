// Byte-pair encoding of one word: repeatedly joins the adjacent pair of lowest rank, the leftmost of equals, until no
// pair has a rank. A heap over a linked list of symbols: O(n log n) in the word's bytes. Symbols are at first single
// bytes (byte-level vocabularies) or single characters.
//
// Three short cuts, all exact. A word that is itself a token, and that the merges make of it, is looked up: whether they do is
// found out at the word's first use and kept in one byte a token (nothing grows; a race writes the same value twice). Where
// no merge joins a byte with the one behind it, a word of characters is cut between the two, since no merge reaches across.
// In a long text what became of the other short words is kept for their next time (Scratch::keep_words).
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
      uint32_t bytes;  // 0: joined to the one on its left
      uint32_t left;
      uint32_t right;
    };
    struct Candidate {
      uint32_t rank;
      uint32_t left;   // index of the left symbol
      uint32_t bytes;  // of both symbols; the candidate is stale when they have changed since
      TokenId joined;
    };
    struct Word {  // one cache line; the last word of its place counts
      uint8_t bytes = 0;
      uint8_t count = 0;
      char word[22];
      TokenId ids[10];
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::vector<Word> words;  // by hash; empty: none are kept

    // 2,048 words in 128 KiB, which pays from some thousand words on.
    void keep_words() { words.resize(2048); }
  };

  // The vocabulary outlives the Bpe. kCorrupt when a merge names a token that the vocabulary does not have. A merge that
  // makes a token which is not ordinary (a control token) is left out: text never becomes one.
  static Result<Bpe> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Appends the ids of a word. A byte or character that the vocabulary has no token for gives its bytes' tokens, the
  // unknown token, or none, as the vocabulary says.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  enum Whole : uint8_t { kNotKnown, kMade };  // whether the merges make a token of its own content

  Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary);
  Status add_merges(const TokenizerSpec& spec);
  Status add_all_joins(const TokenizerSpec& spec);
  void add_join(TokenId left, TokenId right, MergeTable::Merge merge);
  void encode_uncut(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_by_merges(std::string_view word, TokenId whole, Scratch& scratch, std::vector<TokenId>& out) const;
  void fill_symbols(std::string_view word, Scratch& scratch) const;
  void merge(Scratch& scratch) const;
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
