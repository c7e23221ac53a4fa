#include "text/write_tokenizer.h"

#include "core/json.h"
#include "text/chat_template.h"
#include "text/pre_tokenizer_rules.h"
#include "text/sentencepiece_scores.h"
#include "text/tokenizer_json_steps.h"

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
        "that GGUF has: Replace of spaces by \u2581, with Prepend or without");
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

// Whether a prompt begins with BOS: what the configuration says, else the post-processor.
bool adds_bos(const TokenizerSpec& spec, const json::Value& config) {
  const json::Value* says = json::find(config, "add_bos_token");
  if (says != nullptr && says->is_bool()) return says->get_bool();
  return spec.bos != kNoToken && !spec.prompt_prefix.empty() && spec.prompt_prefix.front() == spec.bos;
}

void write_special(const TokenizerSpec& spec, const json::Value& config, model::GgufHeader& header) {
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [from, to] : kNames) {
    TokenId id = named_token(json::find(config, from), spec);
    if (id == kNoToken && from == "unk_token") id = spec.unknown;
    if (id != kNoToken) header.value(to, static_cast<uint32_t>(id));
  }
  header.value("tokenizer.ggml.add_bos_token", adds_bos(spec, config));
}

}  // namespace

Status write_tokenizer(const model::TokenizerTexts& texts, uint64_t rows, model::GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(TokenizerSpec spec, read_tokenizer_json(texts.tokenizer));
  HEADWATER_RETURN_IF_ERROR(read_tokenizer_config(texts.config, "", spec));
  HEADWATER_ASSIGN_OR_RETURN(const Tokens tokens, tokens_of(spec, rows));
  HEADWATER_RETURN_IF_ERROR(write_model(spec, tokens, header));
  std::vector<int32_t> types;
  for (const TokenType type : tokens.types) types.push_back(static_cast<int32_t>(type));
  header.array("tokenizer.ggml.tokens", tokens.spellings).array("tokenizer.ggml.token_type", types);
  json::Value config;
  if (!texts.config.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(config, json::parse(texts.config, "tokenizer_config.json"));
  }
  write_special(spec, config, header);
  for (const auto& [name, key] :
       {std::pair{"default", "tokenizer.chat_template"}, std::pair{"tool_use", "tokenizer.chat_template.tool_use"}}) {
    const std::string_view source = template_named(name, texts.chat_template, config);
    if (!source.empty()) header.value(key, std::string(source));
  }
  return {};
}

}  // namespace headwater::text
