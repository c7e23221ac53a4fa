#include "text/tokenizer.h"

#include <algorithm>
#include <charconv>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

// Control tokens that end an answer in the chat formats of published models.
constexpr std::string_view kEndSpellings[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>",    "<|eom_id|>",
                                              "<|end_of_text|>", "<|end|>",       "<end_of_turn>", "</s>"};

// A kByte token is spelled "<0x0A>".
std::string bytes_of_token(std::string_view spelling, TokenType type) {
  if (type == TokenType::kControl || type == TokenType::kUserDefined) return std::string(spelling);
  if (type == TokenType::kByte && spelling.size() == 6 && spelling.starts_with("<0x") && spelling.ends_with('>')) {
    uint8_t byte = 0;
    if (std::from_chars(&spelling[3], &spelling[5], byte, 16).ptr == &spelling[5]) return {static_cast<char>(byte)};
  }
  return bytes_of_spelling(spelling);
}

Status check_spec(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return error(ErrorCode::kCorrupt, "the vocabulary is empty");
  if (spec.types.size() != spec.tokens.size()) {
    return error(ErrorCode::kCorrupt, "{} token types for {} tokens", spec.types.size(), spec.tokens.size());
  }
  return {};
}

struct Scratch {
  std::vector<std::string_view> words;
  std::vector<std::string_view> pieces;
  std::string spelling;
  Bpe::Scratch bpe;
};

}  // namespace

struct Tokenizer::Impl {
  Bpe::Vocabulary ids;  // by spelling
  std::vector<TokenType> types;
  std::string bytes;            // of all tokens, one after the other
  std::vector<size_t> offsets;  // into bytes; one more than tokens
  size_t token_bytes_max;
  AddedTokens added;
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  bool whole_words_first;
  bool add_bos;
  bool add_eos;
  TokenId bos;
  TokenId eos;
  std::vector<TokenId> ends;  // sorted

  // A control token's spelling never wins over an ordinary token's, and no merge makes a control token.
  static Result<std::unique_ptr<Impl>> create(const TokenizerSpec& spec) {
    HEADWATER_RETURN_IF_ERROR(check_spec(spec));
    HEADWATER_ASSIGN_OR_RETURN(const PreTokenizerRule rule, pre_tokenizer_rule(spec.pre_tokenizer));
    HEADWATER_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(rule.expressions));
    Bpe::Vocabulary ids;
    ids.reserve(spec.tokens.size());
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.types[i] != TokenType::kControl)
        ids.insert_or_assign(std::string(spec.tokens[i]), static_cast<TokenId>(i));
    }
    HEADWATER_ASSIGN_OR_RETURN(Bpe bpe, Bpe::create(ids, spec.merges));
    auto impl = std::unique_ptr<Impl>(new Impl{.ids = std::move(ids),
                                               .types = spec.types,
                                               .bytes = {},
                                               .offsets = {0},
                                               .token_bytes_max = 1,
                                               .added = {},
                                               .bpe = std::move(bpe),
                                               .pre_tokenizer = std::move(pre_tokenizer),
                                               .whole_words_first = rule.whole_words_first,
                                               .add_bos = spec.add_bos.value_or(rule.adds_bos) && spec.bos != kNoToken,
                                               .add_eos = spec.add_eos && spec.eos != kNoToken,
                                               .bos = spec.bos,
                                               .eos = spec.eos,
                                               .ends = spec.end_of_turn});
    for (size_t i = 0; i < spec.tokens.size(); ++i) impl->register_token(static_cast<TokenId>(i), spec.tokens[i]);
    impl->collect_ends();
    return impl;
  }

  void register_token(TokenId id, std::string_view spelling) {
    const TokenType type = types[static_cast<size_t>(id)];
    bytes += bytes_of_token(spelling, type);
    token_bytes_max = std::max(token_bytes_max, bytes.size() - offsets.back());
    offsets.push_back(bytes.size());
    const bool is_control = type == TokenType::kControl;
    if (is_control) ids.emplace(std::string(spelling), id);
    if ((is_control || type == TokenType::kUserDefined) && !spelling.empty()) added.add(spelling, id, is_control);
  }

  void collect_ends() {
    if (eos != kNoToken) ends.push_back(eos);
    for (const std::string_view spelling : kEndSpellings) {
      const auto found = ids.find(std::string(spelling));
      if (found != ids.end() && is_control(found->second)) ends.push_back(found->second);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }

  bool has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < types.size(); }
  bool is_control(TokenId id) const { return has(id) && types[static_cast<size_t>(id)] == TokenType::kControl; }

  TokenId whole_word(std::string_view word, std::string& spelling) const {
    spelling.clear();
    for (const char byte : word) append_utf8(symbol_of_byte(static_cast<uint8_t>(byte)), spelling);
    const auto found = ids.find(spelling);
    return found == ids.end() || is_control(found->second) ? kNoToken : found->second;
  }

  void encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
    scratch.words.clear();
    pre_tokenizer.split(text, scratch.words, scratch.pieces);
    for (const std::string_view word : scratch.words) {
      const TokenId whole = whole_words_first ? whole_word(word, scratch.spelling) : kNoToken;
      if (whole != kNoToken) {
        out.push_back(whole);
      } else {
        bpe.encode(word, scratch.bpe, out);
      }
    }
  }
};

Result<Tokenizer> Tokenizer::create(const model::GgufFile& file) {
  HEADWATER_ASSIGN_OR_RETURN(const TokenizerSpec spec, read_tokenizer_spec(file));
  return create(spec);
}

Result<Tokenizer> Tokenizer::create(const TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Impl::create(spec));
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode(std::span<const TextPart> parts, std::vector<TokenId>& out) const {
  std::string text;
  struct Run {
    size_t end;
    SpecialTokens special;
  };
  std::vector<Run> runs;  // neighbours with the same right are one run
  for (const TextPart& part : parts) {
    append_valid_utf8(part.text, text);
    if (!runs.empty() && runs.back().special == part.special) runs.pop_back();
    runs.push_back({text.size(), part.special});
  }
  Scratch scratch;
  size_t plain_begin = 0;
  size_t run = 0;
  for (size_t at = 0; (at = impl_->added.next_candidate(text, at)) < text.size();) {
    while (runs[run].end <= at) ++run;
    const size_t control_end = runs[run].special == SpecialTokens::kParse ? runs[run].end : 0;
    const AddedTokens::Match match = impl_->added.longest(text, at, control_end);
    if (match.id == kNoToken) {
      ++at;
      continue;
    }
    impl_->encode_plain(std::string_view(text).substr(plain_begin, at - plain_begin), scratch, out);
    out.push_back(match.id);
    at += match.bytes;
    plain_begin = at;
  }
  impl_->encode_plain(std::string_view(text).substr(plain_begin), scratch, out);
}

void Tokenizer::encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& out) const {
  const TextPart part{text, special};
  encode({&part, 1}, out);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<TokenId> ids;
  encode(text, special, ids);
  return ids;
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<TokenId> ids;
  if (impl_->add_bos) ids.push_back(impl_->bos);
  encode(text, SpecialTokens::kAsText, ids);
  if (impl_->add_eos) ids.push_back(impl_->eos);
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_control) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_control || !is_control(id)) bytes += bytes_of(id);
  }
  std::string text;
  append_valid_utf8(bytes, text);
  return text;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  if (!impl_->has(id)) return {};
  const size_t* offset = &impl_->offsets[static_cast<size_t>(id)];
  return std::string_view(impl_->bytes).substr(offset[0], offset[1] - offset[0]);
}

bool Tokenizer::is_control(TokenId id) const {
  return impl_->is_control(id);
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::binary_search(impl_->ends.begin(), impl_->ends.end(), id);
}

std::vector<TokenId> Tokenizer::end_of_generation() const {
  return impl_->ends;
}
uint32_t Tokenizer::vocabulary_size() const {
  return static_cast<uint32_t>(impl_->types.size());
}
size_t Tokenizer::token_bytes_max() const {
  return impl_->token_bytes_max;
}
TokenId Tokenizer::bos() const {
  return impl_->bos;
}
TokenId Tokenizer::eos() const {
  return impl_->eos;
}

TokenId Tokenizer::find(std::string_view token) const {
  const auto found = impl_->ids.find(std::string(token));
  return found == impl_->ids.end() ? kNoToken : found->second;
}

}  // namespace headwater::text
