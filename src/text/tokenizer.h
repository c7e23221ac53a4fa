// Byte-level BPE as GGUF metadata describes it (tokenizer.ggml.model = "gpt2"), and its streaming inverse.
//
//   text --split at added tokens--> pieces --pre-tokeniser regex (PCRE2, UTF)--> words --bytes to symbols--> BPE merges
//   --> ids
//
// Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016; the byte
// alphabet is GPT-2's. The pre-tokeniser is chosen by tokenizer.ggml.pre; an unknown name is kUnsupported.
// Immutable after create(): any number of threads may encode and decode at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"
#include "model/gguf.h"

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
  static Result<Tokenizer> create(const model::GgufFile& file);
  static Result<Tokenizer> create(const TokenizerSpec& spec);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Invalid UTF-8 is replaced by U+FFFD, one per maximal invalid subsequence. No BOS or EOS is added here. A byte that
  // the vocabulary has no symbol for gives no token (SmolLM2 has none for some control characters, such as U+0004).
  // Time is O(n log n) in the text's length whatever the text.
  void encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& out) const;
  std::vector<TokenId> encode(std::string_view text, SpecialTokens special) const;
  // The parts as one text: words reach across the borders of parts, but a control token is found only where its whole
  // spelling lies in kParse parts.
  void encode(std::span<const TextPart> parts, std::vector<TokenId>& out) const;
  // The prompt of a plain completion: BOS in front and EOS behind where the model's metadata ask for it.
  std::vector<TokenId> encode_prompt(std::string_view text) const;

  // Valid UTF-8: what is not becomes U+FFFD. bytes_of() has the bytes as they are.
  std::string decode(std::span<const TokenId> ids, bool skip_control) const;
  // The bytes that a token stands for (not always whole UTF-8); empty for an id outside the vocabulary.
  std::string_view bytes_of(TokenId id) const;
  bool is_control(TokenId id) const;
  bool is_end_of_generation(TokenId id) const;  // EOS, EOT and other tokens that end an answer
  std::vector<TokenId> end_of_generation() const;

  uint32_t vocabulary_size() const;
  size_t token_bytes_max() const;  // of the longest token, at least 1: a text has at least bytes / this many tokens,
                                   // but for bytes that the vocabulary has no symbol for
  TokenId bos() const;  // kNoToken when there is none
  TokenId eos() const;
  TokenId find(std::string_view token) const;  // the id of a token's spelling; kNoToken when absent

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of tokens into a stream of valid UTF-8: bytes of an incomplete character are held back until the
// character is whole; what can never become valid is given out as U+FFFD. One per sequence; allocates nothing in the
// steady state.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  void append(TokenId id,
              std::string& out);  // appends the text that became whole (maybe none); control tokens give none
  void finish(std::string& out);  // an incomplete character at the end becomes U+FFFD

 private:
  const Tokenizer* tokenizer_;
  char pending_[4] = {};
  uint8_t pending_bytes_ = 0;
};

}  // namespace headwater::text
