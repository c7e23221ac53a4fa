#include "text/write_tokenizer.h"

#include <algorithm>

#include "core/json.h"
#include "text/chat_template.h"
#include "text/end_tokens.h"
#include "text/pre_tokenizer_rules.h"
#include "text/sentencepiece_scores.h"
#include "text/token_contents.h"
#include "text/tokenizer_gguf.h"

namespace headwater::text {
namespace {

// Of every row of the embedding.
struct Tokens {
  std::vector<std::string> spellings;
  std::vector<TokenType> types;
};

Result<Tokens> tokens_of(const TokenizerSpec& spec, uint64_t rows) {
  if (spec.tokens.size() > rows) {
    return error(ErrorCode::kCorrupt, "tokenizer.json has ids up to {}, but the embedding has {} rows",
                 spec.tokens.size() - 1, rows);
  }
  Tokens tokens{std::vector<std::string>(rows), std::vector<TokenType>(rows, TokenType::kUnused)};
  for (size_t id = 0; id < rows; ++id) {
    const bool is_token = id < spec.tokens.size() && !spec.tokens[id].empty();
    tokens.spellings[id] = is_token ? std::string(spec.tokens[id]) : fmt::format("[PAD{}]", id);
    if (is_token) tokens.types[id] = spec.types[id];
  }
  for (const AddedToken& token : spec.added) {
    TokenType& type = tokens.types[static_cast<size_t>(token.id)];
    if (type != TokenType::kByte) type = token.is_control ? TokenType::kControl : TokenType::kUserDefined;
  }
  return tokens;
}

Status write_byte_level(const TokenizerSpec& spec, model::GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view pre, pre_tokenizer_name(spec));
  std::vector<std::string> merges;
  for (const auto& [left, right] : spec.merges) merges.push_back(fmt::format("{} {}", left, right));
  header.value("tokenizer.ggml.model", std::string("gpt2")).value("tokenizer.ggml.pre", std::string(pre));
  header.array("tokenizer.ggml.merges", merges);
  return {};
}

Status write_sentencepiece(const TokenizerSpec& spec, const Tokens& tokens, model::GgufHeader& header) {
  const std::optional<bool> adds_prefix = puts_mark_in_front(spec);
  if (!adds_prefix) {
    return error(
        ErrorCode::kUnsupported,
        "tokenizer.json: its \"normalizer\", \"pre_tokenizer\" and \"ignore_merges\" are not those of SentencePiece "
        "that GGUF has: Replace of spaces by \u2581, with Prepend or without, or Metaspace");
  }
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<float> scores, scores_of_merges(spec, tokens.types));
  header.value("tokenizer.ggml.model", std::string("llama")).value("tokenizer.ggml.pre", std::string("default"));
  header.array("tokenizer.ggml.scores", scores).value("tokenizer.ggml.add_space_prefix", *adds_prefix);
  return {};
}

Status write_model(const TokenizerSpec& spec, const Tokens& tokens, model::GgufHeader& header) {
  if (spec.model != ModelKind::kBpe) {
    return error(ErrorCode::kUnsupported, "tokenizer.json: its \"model\" is not BPE, which alone is written");
  }
  if (spec.has_byte_fallback) return write_sentencepiece(spec, tokens, header);
  if (spec.is_byte_level) return write_byte_level(spec, header);
  return error(ErrorCode::kUnsupported,
               "tokenizer.json: its \"model\" is not byte-level BPE, nor SentencePiece's (\"byte_fallback\"), which "
               "alone are written");
}

void write_ends(const TokenizerSpec& spec, model::GgufHeader& header) {
  const std::pair<TokenId, const char*> named[] = {{spec.bos, "tokenizer.ggml.bos_token_id"},
                                                   {spec.eos, "tokenizer.ggml.eos_token_id"},
                                                   {spec.unknown, "tokenizer.ggml.unknown_token_id"},
                                                   {spec.padding, "tokenizer.ggml.padding_token_id"}};
  for (const auto& [id, key] : named) {
    if (id != kNoToken) header.value(key, static_cast<uint32_t>(id));
  }
  const bool adds_bos = !spec.prompt_prefix.empty() && spec.prompt_prefix.front() == spec.bos;
  const bool adds_eos = !spec.prompt_suffix.empty() && spec.prompt_suffix.back() == spec.eos;
  header.value("tokenizer.ggml.add_bos_token", adds_bos).value("tokenizer.ggml.add_eos_token", adds_eos);

  TokenizerSpec unnamed = spec;  // its ends are found without being named
  unnamed.end_of_turn.clear();
  std::vector<TokenId> ends;
  std::ranges::set_difference(end_tokens(spec), end_tokens(unnamed), std::back_inserter(ends));
  const size_t keyed = std::min(ends.size(), std::size(kEndKeys));
  for (size_t i = 0; i < keyed; ++i) header.value(kEndKeys[i], static_cast<uint32_t>(ends[i]));
  if (keyed < ends.size()) header.array(kMoreEndsKey, std::vector<uint32_t>(ends.begin() + keyed, ends.end()));
}

// GGUF's own keys.
Result<model::GgufHeader> write_keys(const TokenizerSpec& spec, uint64_t rows) {
  HEADWATER_ASSIGN_OR_RETURN(const Tokens tokens, tokens_of(spec, rows));
  model::GgufHeader keys;
  HEADWATER_RETURN_IF_ERROR(write_model(spec, tokens, keys));
  std::vector<int32_t> types;
  for (const TokenType type : tokens.types) types.push_back(static_cast<int32_t>(type));
  keys.array("tokenizer.ggml.tokens", tokens.spellings).array("tokenizer.ggml.token_type", types);
  write_ends(spec, keys);
  return keys;
}

// Of one spelling the first in the file counts; else their order means nothing.
std::vector<AddedToken> added_by_spelling(const TokenizerSpec& spec) {
  std::vector<AddedToken> added = spec.added;
  std::ranges::stable_sort(added, {}, &AddedToken::spelling);
  return added;
}

bool has_same_contents(const TokenizerSpec& folder, const TokenizerSpec& keys) {
  const TokenContents encoded[] = {TokenContents::to_encode(folder), TokenContents::to_encode(keys)};
  const TokenContents decoded[] = {TokenContents::to_decode(folder, {}), TokenContents::to_decode(keys, {})};
  for (size_t i = 0; i < folder.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (folder.tokens[i].empty()) continue;
    if (decoded[0].of(id) != decoded[1].of(id)) return false;
    // What is found before words are cut is in no word, but where a space becomes a mark.
    const bool is_in_no_word =
        keys.types[i] == TokenType::kUserDefined && keys.tokens[i].find("\u2581") == std::string_view::npos;
    if (!is_in_no_word && encoded[0].of(id) != encoded[1].of(id)) return false;
  }
  return true;
}

// Whether the keys say all that the folder does. How a text is changed and cut they say, or were not written, but for
// Metaspace.
bool is_whole(const TokenizerSpec& folder, const TokenizerSpec& keys) {
  const auto marks = [](const PreTokenizerStep& step) { return step.kind == PreTokenizerStep::Kind::kMetaspace; };
  return std::ranges::none_of(folder.pre_tokenizer, marks) && added_by_spelling(folder) == added_by_spelling(keys) &&
         folder.prompt_prefix == keys.prompt_prefix && folder.prompt_suffix == keys.prompt_suffix &&
         end_tokens(folder) == end_tokens(keys) && folder.unknown == keys.unknown &&
         folder.fuses_unknown == keys.fuses_unknown && folder.has_byte_fallback == keys.has_byte_fallback &&
         folder.space_mark == keys.space_mark && folder.leading_space == keys.leading_space &&
         has_same_contents(folder, keys);
}

}  // namespace

Status write_tokenizer(const model::TokenizerTexts& texts, uint64_t rows, model::GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(const TokenizerSpec spec, read_tokenizer_texts(texts));
  HEADWATER_ASSIGN_OR_RETURN(const model::GgufHeader keys, write_keys(spec, rows));
  header.values(keys);
  const std::vector<std::byte> image = keys.bytes();
  HEADWATER_ASSIGN_OR_RETURN(const model::GgufFile file, model::GgufFile::parse(image));
  HEADWATER_ASSIGN_OR_RETURN(const TokenizerSpec read, read_tokenizer_gguf(file));
  if (!is_whole(spec, read)) header.value(kWholeTokenizerKey, std::string(texts.tokenizer));
  json::Value config;
  if (!texts.config.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(config, json::parse(texts.config, "tokenizer_config.json"));
  }
  for (const auto& [name, key] :
       {std::pair{"default", "tokenizer.chat_template"}, std::pair{"tool_use", "tokenizer.chat_template.tool_use"}}) {
    const std::string_view source = template_named(name, texts.chat_template, config);
    if (!source.empty()) header.value(key, std::string(source));
  }
  return {};
}

}  // namespace headwater::text
