// Unigram language model: the cut of a word into tokens whose scores (log probabilities) have the largest sum, found by
// Viterbi's algorithm over the characters: time is O(n * longest token). A character that is no token costs ten less than
// the worst score; neighbours of that kind become one unknown token, or their bytes' tokens.
// Source: Kudo, "Subword Regularization", ACL 2018; the penalty is SentencePiece's.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"
#include "text/trie.h"

namespace headwater::text {

class Unigram {
 public:
  struct Scratch {  // working space of one thread
    struct Best {   // of the cuts of the word up to a position
      double score;
      uint32_t begin;  // of the last token
      TokenId id;      // kNoToken: an unknown character
    };
    std::vector<Best> best;
    std::vector<Best> path;
  };

  // The spec's views outlive the Unigram. kUnsupported when there is neither an unknown token nor tokens of all bytes.
  static Result<Unigram> create(const TokenizerSpec& spec);

  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  explicit Unigram(const TokenizerSpec& spec);

  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_;
  TokenId unknown_;
  bool fuses_unknown_;
  bool has_byte_tokens_;
  std::array<TokenId, 256> byte_tokens_;
};

}  // namespace headwater::text
