// Byte-pair encoding of one word: repeatedly joins the adjacent pair of lowest rank, the leftmost of equals, until no
// pair has a rank. A heap over a linked list of symbols: O(n log n) in the word's bytes.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_table.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {

class Bpe {
 public:
  using Vocabulary = std::unordered_map<std::string, TokenId>;  // spelling -> id

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
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // kCorrupt when a merge names a token that the vocabulary does not have.
  static Result<Bpe> create(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges);

  // Appends the ids of a word. A byte without a symbol in the vocabulary gives none, as in the published tokenisers.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  explicit Bpe(size_t merges) : ranks_(merges) {}
  void offer(Scratch& scratch, uint32_t left) const;

  std::array<TokenId, 256> byte_ids_{};
  MergeTable ranks_;
  std::vector<TokenId> merged_;  // rank -> the id that the pair becomes
};

}  // namespace headwater::text
