#include "text/tokenizer_config.h"

#include <algorithm>
#include <boost/json/serialize.hpp>

#include "core/json.h"
#include "core/shown.h"

namespace headwater::text {
namespace {

constexpr char kConfig[] = "tokenizer_config.json";

Result<json::Value> parse_object(std::string_view text, std::string_view what) {
  if (text.empty()) return json::Value(boost::json::object());
  HEADWATER_ASSIGN_OR_RETURN(json::Value value, json::parse(text, what));
  if (!value.is_object()) return error(ErrorCode::kCorrupt, "{} is not a JSON object", what);
  return value;
}

std::string as_shown(const json::Value& value) {
  return shown(boost::json::serialize(value));
}

// "<s>", {"content": "<s>", ...}, or null.
Result<TokenId> named_token(const json::Value& config, std::string_view key, const TokenizerSpec& spec) {
  const json::Value* value = json::find(config, key);
  if (value == nullptr) return kNoToken;
  const json::Value* spelling = value->is_object() ? json::find(*value, "content") : value;
  if (spelling == nullptr || !spelling->is_string() || spelling->get_string().empty()) {
    return error(ErrorCode::kCorrupt, R"({}: "{}" is {}; it needs a token's spelling, {{"content": spelling}} or null)",
                 kConfig, key, as_shown(*value));
  }
  const auto found = std::ranges::find(spec.tokens, std::string_view(spelling->get_string()));
  if (found == spec.tokens.end()) {
    return error(ErrorCode::kCorrupt,
                 R"({}: "{}" is {}, which is no token of tokenizer.json; name one of its tokens, or null for none)",
                 kConfig, key, as_shown(*spelling));
  }
  return static_cast<TokenId>(found - spec.tokens.begin());
}

// none: the file does not say.
Result<std::optional<bool>> adds_token(const json::Value& config, std::string_view key, std::string_view token_key,
                                       TokenId token, const std::vector<TokenId>& around) {
  const json::Value* value = json::find(config, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_bool()) {
    return error(ErrorCode::kCorrupt, "{}: \"{}\" is {}; it needs true, false or null", kConfig, key, as_shown(*value));
  }
  if (value->get_bool() && token == kNoToken && around.empty()) {
    return error(ErrorCode::kCorrupt, "{}: \"{}\" is true, but \"{}\" names no token; name one, or say false", kConfig,
                 key, token_key);
  }
  return std::optional(value->get_bool());
}

// A number, a list of them, or null. What is no token (files have the defaults of their class) is passed over.
Status read_eos_ids(const json::Value& ids, std::string_view file, TokenizerSpec& spec) {
  const auto add = [&](const json::Value& value) -> Status {
    const std::optional<uint64_t> id = json::to_unsigned(value);
    if (!id) {
      return error(ErrorCode::kCorrupt, "{}: \"eos_token_id\" holds {}; it needs a token's id, a list of them, or null",
                   file, as_shown(value));
    }
    if (*id < spec.tokens.size()) spec.end_of_turn.push_back(static_cast<TokenId>(*id));
    return {};
  };
  if (!ids.is_array()) return add(ids);
  for (const json::Value& id : ids.get_array()) HEADWATER_RETURN_IF_ERROR(add(id));
  return {};
}

Status read_ends(const model::TokenizerTexts& texts, TokenizerSpec& spec) {
  static constexpr char kGeneration[] = "generation_config.json", kModel[] = "config.json";
  HEADWATER_ASSIGN_OR_RETURN(const json::Value generation, parse_object(texts.generation, kGeneration));
  if (const json::Value* ids = json::find(generation, "eos_token_id")) {
    return read_eos_ids(*ids, kGeneration, spec);
  }
  HEADWATER_ASSIGN_OR_RETURN(const json::Value model, parse_object(texts.model, kModel));
  const json::Value* ids = json::find(model, "eos_token_id");
  return ids == nullptr ? Status() : read_eos_ids(*ids, kModel, spec);
}

}  // namespace

void decide_ends(std::optional<bool> adds_bos, std::optional<bool> adds_eos, TokenizerSpec& spec) {
  std::vector<TokenId>& prefix = spec.prompt_prefix;
  std::vector<TokenId>& suffix = spec.prompt_suffix;
  const bool has_bos = !prefix.empty() && prefix.front() == spec.bos;
  const bool has_eos = !suffix.empty() && suffix.back() == spec.eos;
  if (has_bos && !adds_bos.value_or(true)) prefix.erase(prefix.begin());
  if (!has_bos && adds_bos.value_or(false) && spec.bos != kNoToken) prefix.insert(prefix.begin(), spec.bos);
  if (has_eos && !adds_eos.value_or(true)) suffix.pop_back();
  if (!has_eos && adds_eos.value_or(false) && spec.eos != kNoToken) suffix.push_back(spec.eos);
}

Status read_tokenizer_config(const model::TokenizerTexts& texts, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const json::Value config, parse_object(texts.config, kConfig));
  HEADWATER_ASSIGN_OR_RETURN(spec.bos, named_token(config, "bos_token", spec));
  HEADWATER_ASSIGN_OR_RETURN(spec.eos, named_token(config, "eos_token", spec));
  // Not looked at any closer: nothing is padded here, and of unk_token the model's own is the one that counts.
  const Result<TokenId> padding = named_token(config, "pad_token", spec);
  spec.padding = padding ? *padding : kNoToken;
  HEADWATER_ASSIGN_OR_RETURN(const auto adds_bos,
                             adds_token(config, "add_bos_token", "bos_token", spec.bos, spec.prompt_prefix));
  HEADWATER_ASSIGN_OR_RETURN(const auto adds_eos,
                             adds_token(config, "add_eos_token", "eos_token", spec.eos, spec.prompt_suffix));
  decide_ends(adds_bos, adds_eos, spec);
  return read_ends(texts, spec);
}

Result<TokenizerSpec> read_tokenizer_texts(const model::TokenizerTexts& texts) {
  HEADWATER_ASSIGN_OR_RETURN(TokenizerSpec spec, read_tokenizer_json(texts.tokenizer));
  HEADWATER_RETURN_IF_ERROR(read_tokenizer_config(texts, spec));
  return spec;
}

}  // namespace headwater::text
