#include "text/piece_encoder.h"

#include "text/byte_alphabet.h"

namespace headwater::text {
namespace {

// Appends what became of the piece, or has it encoded and keeps that.
template <typename Encode>
void look_up(std::string_view piece, size_t step, KnownPieces& known, std::vector<TokenId>& out, Encode encode) {
  if (!known.can_keep(piece)) return encode();
  if (known.recall(piece, step, out)) return;
  const size_t first = out.size();
  encode();
  known.keep(piece, step, std::span(out).subspan(first));
}

}  // namespace

// Takes the parts of a piece that a step has cut.
class PieceEncoder::Parts final : public PreTokenizer::Parts {
 public:
  Parts(const PieceEncoder& encoder, std::string_view piece, size_t next_step, Scratch& scratch,
        std::vector<TokenId>& out)
      : encoder_(encoder), piece_bytes_(piece.size()), next_step_(next_step), scratch_(scratch), out_(out) {}

  void add(std::string_view part, bool begins) override {
    const auto encode = [&] { encoder_.encode_piece(part, next_step_, begins, scratch_, out_); };
    // A piece that is still whole has been looked for already; what begins the text may become something of its own.
    if (begins || part.size() == piece_bytes_) return encode();
    look_up(part, next_step_, scratch_.known, out_, encode);
  }

 private:
  const PieceEncoder& encoder_;
  size_t piece_bytes_;
  size_t next_step_;
  Scratch& scratch_;
  std::vector<TokenId>& out_;
};

Result<PieceEncoder> PieceEncoder::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  HEADWATER_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(spec.pre_tokenizer));
  PieceEncoder encoder(std::move(pre_tokenizer));
  if (spec.model == ModelKind::kUnigram) {
    HEADWATER_ASSIGN_OR_RETURN(Unigram unigram, Unigram::create(spec));
    encoder.unigram_.emplace(std::move(unigram));
  } else {
    HEADWATER_ASSIGN_OR_RETURN(Bpe bpe, Bpe::create(spec, vocabulary));
    encoder.bpe_.emplace(std::move(bpe));
  }
  return encoder;
}

void PieceEncoder::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (unigram_) return unigram_->encode(word, scratch.unigram, out);
  bpe_->each_part(word, [&](std::string_view part) {
    const auto encode = [&] { bpe_->encode(part, scratch.bpe, out); };
    if (part.size() == word.size()) return encode();
    look_up(part, pre_tokenizer_.steps() + 1, scratch.known, out, encode);
  });
}

void PieceEncoder::encode_piece(std::string_view piece, size_t step, bool begins, Scratch& scratch,
                                std::vector<TokenId>& out) const {
  if (step < pre_tokenizer_.steps()) {
    Parts parts(*this, piece, step + 1, scratch, out);
    pre_tokenizer_.cut(step, piece, begins, scratch.cutting, parts);
  } else if (pre_tokenizer_.gives_symbols()) {
    encode_word(bytes_of_spelling(piece), scratch, out);
  } else {
    encode_word(piece, scratch, out);
  }
}

void PieceEncoder::encode(std::string_view text, bool begins, Scratch& scratch, std::vector<TokenId>& out) const {
  if (!text.empty()) encode_piece(text, 0, begins, scratch, out);
}

}  // namespace headwater::text
