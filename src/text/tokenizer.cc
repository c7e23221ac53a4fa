#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "text/added_tokens.h"
#include "text/end_tokens.h"
#include "text/normalizer.h"
#include "text/piece_encoder.h"
#include "text/token_contents.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

using Scratch = PieceEncoder::Scratch;

Status check_spec(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return error(ErrorCode::kCorrupt, "the vocabulary is empty");
  if (spec.types.size() != spec.tokens.size()) {
    return error(ErrorCode::kCorrupt, "{} token types for {} tokens", spec.types.size(), spec.tokens.size());
  }
  if (spec.model != ModelKind::kBpe && spec.scores.size() != spec.tokens.size()) {
    return error(ErrorCode::kCorrupt, "{} scores for {} tokens", spec.scores.size(), spec.tokens.size());
  }
  return {};
}

// An added token is looked for at every byte of a text.
Status check_added(const AddedToken& token, std::string_view spelling) {
  if (spelling.size() <= AddedTokens::kBytesMax) return {};
  return error(ErrorCode::kUnsupported,
               "the added token {} has {} bytes as it is looked for in a text; at most {} are read", token.id,
               spelling.size(), AddedTokens::kBytesMax);
}

// The runs of text[begin, end), counted from begin.
std::vector<Run> runs_within(const std::vector<Run>& runs, size_t begin, size_t end) {
  std::vector<Run> within;
  auto run = std::upper_bound(runs.begin(), runs.end(), begin, [](size_t at, const Run& r) { return at < r.end; });
  for (; run != runs.end() && (within.empty() || within.back().end < end - begin); ++run) {
    within.push_back({std::min(run->end, end) - begin, run->special});
  }
  return within;
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<TokenType> types;
  TokenContents contents;  // what text must hold to become a token
  TokenContents bytes;     // what a token becomes when it is decoded
  Vocabulary vocabulary;
  std::unordered_map<std::string, TokenId> added_ids;  // by spelling
  AddedTokens added;                                   // found in the text as it is
  AddedTokens added_normalized;                        // found in normalised text between those
  bool normalizes_control;                             // some control token is among the latter
  Normalizer normalizer;
  std::optional<PieceEncoder> pieces;  // always there; it points to the vocabulary
  std::vector<TokenId> prompt_prefix;
  std::vector<TokenId> prompt_suffix;
  bool is_byte_level;
  TokenizerSpec::LeadingSpace leading_space;
  TokenId bos;
  TokenId eos;
  TokenId unknown;
  std::vector<TokenId> ends;  // sorted
  std::string description;

  static Result<std::unique_ptr<Impl>> create(const TokenizerSpec& spec);

  bool has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < types.size(); }
  bool is_control(TokenId id) const { return has(id) && types[static_cast<size_t>(id)] == TokenType::kControl; }

  Status encode(std::string_view text, const std::vector<Run>& runs, std::vector<TokenId>& out) const;
  Status encode_stretch(std::string_view text, const std::vector<Run>& runs, bool begins, Scratch& scratch,
                        Normalizer::Budget& budget, std::vector<TokenId>& out) const;
  Result<std::string> normalize(std::string_view text, std::vector<Run>& runs, Regex::Space& space,
                                Normalizer::Budget& budget) const;
};

Result<std::unique_ptr<Tokenizer::Impl>> Tokenizer::Impl::create(const TokenizerSpec& spec) {
  HEADWATER_RETURN_IF_ERROR(check_spec(spec));
  HEADWATER_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::create(spec.normalizer));
  std::vector<AddedToken> plain, normalized;
  std::vector<std::string> plain_spellings, normalized_spellings;
  std::unordered_map<std::string, TokenId> added_ids;
  std::unordered_map<TokenId, std::string> renamed;
  Regex::Space space;
  bool normalizes_control = false;
  for (const AddedToken& token : spec.added) {
    added_ids.emplace(token.spelling, token.id);
    HEADWATER_RETURN_IF_ERROR(check_added(token, token.spelling));
    if (token.is_normalized) {
      Normalizer::Budget budget(token.spelling.size());
      HEADWATER_ASSIGN_OR_RETURN(std::string spelling, normalizer.apply(token.spelling, {}, space, budget));
      HEADWATER_RETURN_IF_ERROR(check_added(token, spelling));
      normalized.push_back(token);
      normalized_spellings.push_back(std::move(spelling));
      if (!token.is_control) renamed.emplace(token.id, normalized_spellings.back());
      normalizes_control = normalizes_control || token.is_control;
    } else {
      plain.push_back(token);
      plain_spellings.emplace_back(token.spelling);
    }
  }
  TokenContents contents = TokenContents::to_encode(spec);
  Vocabulary vocabulary(contents.views());
  auto impl =
      std::unique_ptr<Impl>(new Impl{.types = spec.types,
                                     .contents = std::move(contents),
                                     .bytes = TokenContents::to_decode(spec, renamed),
                                     .vocabulary = std::move(vocabulary),
                                     .added_ids = std::move(added_ids),
                                     .added = {std::move(plain), std::move(plain_spellings)},
                                     .added_normalized = {std::move(normalized), std::move(normalized_spellings)},
                                     .normalizes_control = normalizes_control,
                                     .normalizer = std::move(normalizer),
                                     .prompt_prefix = spec.prompt_prefix,
                                     .prompt_suffix = spec.prompt_suffix,
                                     .is_byte_level = spec.is_byte_level,
                                     .leading_space = spec.leading_space,
                                     .bos = spec.bos,
                                     .eos = spec.eos,
                                     .unknown = spec.unknown,
                                     .ends = end_tokens(spec),
                                     .description = describe(spec)});
  HEADWATER_ASSIGN_OR_RETURN(PieceEncoder pieces, PieceEncoder::create(spec, impl->vocabulary));
  impl->pieces.emplace(std::move(pieces));
  return impl;
}

// Where control tokens are looked for in normalised text, each run is normalised by itself, so that it is known what became
// of it; otherwise the text is normalised as a whole.
Result<std::string> Tokenizer::Impl::normalize(std::string_view text, std::vector<Run>& runs, Regex::Space& space,
                                               Normalizer::Budget& budget) const {
  if (runs.size() == 1 || !normalizes_control) {
    HEADWATER_ASSIGN_OR_RETURN(std::string out, normalizer.apply(text, {}, space, budget));
    const SpecialTokens special = runs.size() == 1 ? runs[0].special : SpecialTokens::kAsText;
    runs.assign(1, {out.size(), special});
    return out;
  }
  std::string out;
  size_t begin = 0;
  for (Run& run : runs) {
    const size_t end = run.end;
    const Normalizer::Ends sides = {begin == 0, end == text.size()};
    HEADWATER_ASSIGN_OR_RETURN(const std::string part,
                               normalizer.apply(text.substr(begin, end - begin), sides, space, budget));
    out += part;
    run.end = out.size();
    begin = end;
  }
  return out;
}

Status Tokenizer::Impl::encode_stretch(std::string_view text, const std::vector<Run>& runs, bool begins,
                                       Scratch& scratch, Normalizer::Budget& budget, std::vector<TokenId>& out) const {
  if (text.empty()) return {};
  if (normalizer.is_empty() && added_normalized.is_empty()) {
    pieces->encode(text, begins, scratch, out);
    return {};
  }
  std::vector<Run> changed_runs = runs;
  HEADWATER_ASSIGN_OR_RETURN(const std::string changed, normalize(text, changed_runs, scratch.cutting.space, budget));
  if (begins) {
    HEADWATER_ASSIGN_OR_RETURN(const bool drops_front, normalizer.drops_front(text, scratch.cutting.space));
    begins = !drops_front;
  }
  std::vector<AddedTokens::Match> matches;
  if (!added_normalized.is_empty()) added_normalized.find(changed, changed_runs, matches);
  size_t at = 0;
  for (const AddedTokens::Match& match : matches) {
    const size_t end = std::max(at, match.begin);
    pieces->encode(std::string_view(changed).substr(at, end - at), begins && at == 0, scratch, out);
    out.push_back(match.id);
    at = match.end;
  }
  pieces->encode(std::string_view(changed).substr(at), begins && at == 0, scratch, out);
  return {};
}

Status Tokenizer::Impl::encode(std::string_view text, const std::vector<Run>& runs, std::vector<TokenId>& out) const {
  std::vector<AddedTokens::Match> matches;
  added.find(text, runs, matches);
  matches.push_back({text.size(), text.size(), kNoToken});
  Scratch scratch(text.size());
  Normalizer::Budget budget(text.size());
  size_t at = 0;
  for (const AddedTokens::Match& match : matches) {
    const size_t end = std::max(at, match.begin);
    HEADWATER_RETURN_IF_ERROR(
        encode_stretch(text.substr(at, end - at), runs_within(runs, at, end), at == 0, scratch, budget, out));
    if (match.id != kNoToken) out.push_back(match.id);
    at = match.end;
  }
  return {};
}

Result<Tokenizer> Tokenizer::create(const model::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return create(*checkpoint.gguf());
  HEADWATER_ASSIGN_OR_RETURN(const model::TokenizerTexts texts, model::tokenizer_texts(*checkpoint.folder()));
  return create(texts);
}

Result<Tokenizer> Tokenizer::create(const model::GgufFile& file) {
  HEADWATER_ASSIGN_OR_RETURN(const TokenizerSpec spec, read_tokenizer_gguf(file));
  return create(spec);
}

Result<Tokenizer> Tokenizer::create(const model::TokenizerTexts& texts) {
  HEADWATER_ASSIGN_OR_RETURN(const TokenizerSpec spec, read_tokenizer_texts(texts));
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

Status Tokenizer::encode(std::span<const TextPart> parts, std::vector<TokenId>& out) const {
  std::string text;
  std::vector<Run> runs;  // neighbours with the same right are one run
  for (const TextPart& part : parts) {
    const size_t begin = text.size();
    append_valid_utf8(part.text, text);
    if (text.size() == begin) continue;
    if (!runs.empty() && runs.back().special == part.special) runs.pop_back();
    runs.push_back({text.size(), part.special});
  }
  return text.empty() ? Status() : impl_->encode(text, runs, out);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<TokenId> ids;
  const TextPart part{text, special};
  HEADWATER_RETURN_IF_ERROR(encode({&part, 1}, ids));
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<TokenId> ids = impl_->prompt_prefix;
  const TextPart part{text, SpecialTokens::kAsText};
  HEADWATER_RETURN_IF_ERROR(encode({&part, 1}, ids));
  ids.insert(ids.end(), impl_->prompt_suffix.begin(), impl_->prompt_suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_control) const {
  Detokenizer detokenizer(*this, skip_control);
  std::string text;
  for (const TokenId id : ids) detokenizer.append(id, text);
  detokenizer.finish(text);
  return text;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  return impl_->has(id) ? impl_->bytes.of(id) : std::string_view();
}

std::string_view Tokenizer::first_bytes_of(TokenId id) const {
  std::string_view bytes = bytes_of(id);
  using LeadingSpace = TokenizerSpec::LeadingSpace;
  size_t dropped = 0;
  if (impl_->leading_space == LeadingSpace::kOneDropped) dropped = bytes.starts_with(' ');
  if (impl_->leading_space == LeadingSpace::kOfFirstTokenDropped) {
    dropped = std::min(bytes.find_first_not_of(' '), bytes.size());
  }
  return bytes.substr(dropped);
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
const std::string& Tokenizer::description() const {
  return impl_->description;
}
uint32_t Tokenizer::vocabulary_size() const {
  return static_cast<uint32_t>(impl_->types.size());
}
size_t Tokenizer::token_bytes_max() const {
  return impl_->bytes.bytes_max();
}
TokenId Tokenizer::bos() const {
  return impl_->bos;
}
TokenId Tokenizer::eos() const {
  return impl_->eos;
}

TokenId Tokenizer::unknown() const {
  return impl_->unknown;
}

TokenId Tokenizer::find(std::string_view token) const {
  const auto added = impl_->added_ids.find(std::string(token));
  if (added != impl_->added_ids.end()) return added->second;
  return impl_->vocabulary.find(impl_->is_byte_level ? bytes_of_spelling(token) : std::string(token));
}

}  // namespace headwater::text
