// Normalised text to ids: each step of the pre-tokeniser cuts a piece, each part goes through the steps that are left, and the
// model makes ids of what then is a word.
//
//   text -step 0-> parts -step 1-> parts ... -> words -parts that no merge joins-> ids
//
// One piece goes all the way before the next one is cut, so nothing is listed. What becomes of a short piece is kept, at each
// step, for its next time: in a text of any language most are looked up as soon as they are cut, however many steps are left.
#pragma once

#include <optional>

#include "text/bpe.h"
#include "text/known_pieces.h"
#include "text/pre_tokenizer.h"
#include "text/unigram.h"

namespace headwater::text {

class PieceEncoder {
 public:
  struct Scratch {  // working space of one thread and text
    explicit Scratch(size_t text_bytes) { known.open(text_bytes); }

    PreTokenizer::Scratch cutting;
    Bpe::Scratch bpe;
    Unigram::Scratch unigram;
    KnownPieces known;
  };

  // The vocabulary outlives the PieceEncoder; so do the spec's views where the model is unigram.
  static Result<PieceEncoder> create(const TokenizerSpec& spec, const Vocabulary& vocabulary);

  // Appends the ids of text, which is valid UTF-8. begins: nothing stands in front of it.
  void encode(std::string_view text, bool begins, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  class Parts;
  explicit PieceEncoder(PreTokenizer pre_tokenizer) : pre_tokenizer_(std::move(pre_tokenizer)) {}
  void encode_piece(std::string_view piece, size_t step, bool begins, Scratch& scratch,
                    std::vector<TokenId>& out) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  PreTokenizer pre_tokenizer_;
  std::optional<Bpe> bpe_;
  std::optional<Unigram> unigram_;
};

}  // namespace headwater::text
