// Text to token ids and back, by the tokenizer that a model's file describes: byte-level BPE, SentencePiece's BPE, unigram.
//
//   text --added tokens--> stretches --normaliser--> text --pre-tokeniser--> words --BPE or unigram--> ids
//
// The description comes from GGUF metadata or from a tokenizer.json (tokenizer_spec.h); docs/tokenizers.md says what is read
// and what is refused. Immutable after create(): any number of threads may encode and decode at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"
#include "model/checkpoint.h"
#include "model/tokenizer_texts.h"

namespace headwater::text {

inline constexpr TokenId kNoToken = -1;

// Whether spellings of control tokens ("<|im_end|>") inside the text become those tokens. Only template-owned text may.
enum class SpecialTokens : uint8_t { kAsText, kParse };

// A stretch of a longer text with its own right to spell control tokens.
struct TextPart {
  std::string_view text;
  SpecialTokens special;
};

struct TokenizerSpec;  // text/tokenizer_spec.h: a vocabulary as plain data

class Tokenizer {
 public:
  // From a GGUF file's metadata, or the texts of a folder. kNotFound where the folder has no tokenizer.json.
  static Result<Tokenizer> create(const model::Checkpoint& checkpoint);
  static Result<Tokenizer> create(const model::GgufFile& file);
  static Result<Tokenizer> create(const model::TokenizerTexts& texts);
  static Result<Tokenizer> create(const TokenizerSpec& spec);
  static Tokenizer of_bytes();  // a token a byte, for models without a tokenizer of their own
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Invalid UTF-8 is replaced by U+FFFD, one per maximal invalid subsequence. No BOS or EOS is added here. What the
  // vocabulary has no token for becomes tokens of its bytes, the unknown token, or none (SmolLM2 has none for some control
  // characters, such as U+0004). Time is O(n log n) in the text's length whatever the text, but for expressions of a
  // tokenizer.json that take longer themselves. kInvalidArgument: its normaliser makes far more of this text (normalizer.h).
  Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens special) const;
  // The parts as one text: words reach across the borders of parts, but a control token is found only where its whole
  // spelling lies in kParse parts. Appends; part of it where it fails.
  Status encode(std::span<const TextPart> parts, std::vector<TokenId>& out) const;
  // The prompt of a plain completion: BOS in front and EOS behind where the model's metadata ask for it.
  Result<std::vector<TokenId>> encode_prompt(std::string_view text) const;

  // Valid UTF-8: what is not becomes U+FFFD. The space that encoding puts in front of a text is taken off again.
  std::string decode(std::span<const TokenId> ids, bool skip_control) const;
  // The bytes that a token stands for (not always whole UTF-8); empty for an id outside the vocabulary.
  std::string_view bytes_of(TokenId id) const;
  bool is_control(TokenId id) const;
  bool is_end_of_generation(TokenId id) const;  // EOS, EOT and other tokens that end an answer
  std::vector<TokenId> end_of_generation() const;

  // Kind, tokens, merges, pre-tokeniser and added tokens, on one line.
  const std::string& description() const;
  uint32_t vocabulary_size() const;
  size_t token_bytes_max() const;  // of the longest token, at least 1: a text has at least bytes / this many tokens,
                                   // but for what gives no token, or is one unknown token together
  TokenId bos() const;             // kNoToken when there is none
  TokenId eos() const;
  TokenId unknown() const;  // what text becomes that has no token; a file may call it a control token
  TokenId find(std::string_view token) const;  // the id of a token's spelling; kNoToken when absent
  // What of the bytes of the first token of a text is text: without the space that encoding puts in front.
  std::string_view first_bytes_of(TokenId id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of tokens into a stream of valid UTF-8: bytes of an incomplete character are held back until the
// character is whole; what can never become valid is given out as U+FFFD. Joined, it is what decode() gives. One per
// sequence; allocates nothing in the steady state.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skips_control = true);
  void append(TokenId id, std::string& out);  // appends the text that became whole (maybe none)
  void finish(std::string& out);              // an incomplete character at the end becomes U+FFFD

 private:
  void append_byte(char byte, std::string& out);

  const Tokenizer* tokenizer_;
  bool skips_control_;
  bool has_begun_ = false;  // a token gave text
  char pending_[4] = {};
  uint8_t pending_bytes_ = 0;
};

}  // namespace headwater::text
