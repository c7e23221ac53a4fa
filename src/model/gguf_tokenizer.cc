#include "model/gguf_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/json.h"
#include "model/names.h"

namespace headwater::model {
namespace {

enum Kind : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };  // tokenizer.ggml.token_type

bool bool_at(const json::Value& object, std::string_view name, bool absent) {
  const json::Value* value = json::find(object, name);
  return value != nullptr && value->is_bool() ? value->get_bool() : absent;
}

Status corrupt(std::string_view what) {
  return error(ErrorCode::kCorrupt, "tokenizer.json: {}", what);
}

// A pre-tokeniser by its steps, one word or expression each, and GGUF's name of it (tokenizer.ggml.pre).
struct PreTokenizer {
  std::string_view name;
  std::vector<std::string_view> steps;
};

constexpr std::string_view kGpt2Words = "ByteLevel with its words";
constexpr std::string_view kBytes = "ByteLevel";
constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> kAll = {{"gpt-2", {kGpt2Words}},
                                                 {"smollm", {"each digit", kGpt2Words}},
                                                 {"llama-bpe", {kLlama3Words, kBytes}},
                                                 {"qwen2", {kQwen2Words, kBytes}}};
  return kAll;
}

std::string_view step_of(const json::Value& step) {
  const std::string_view type = json::text_at(step, "type");
  if (type == "Digits" && bool_at(step, "individual_digits", false)) return "each digit";
  if (type == "ByteLevel" && !bool_at(step, "add_prefix_space", true)) {
    return bool_at(step, "use_regex", true) ? kGpt2Words : kBytes;
  }
  const json::Value* pattern = json::find(step, "pattern");
  const bool is_split =
      type == "Split" && json::text_at(step, "behavior") == "Isolated" && !bool_at(step, "invert", false);
  return is_split && pattern != nullptr ? json::text_at(*pattern, "Regex") : "";
}

Result<std::string> pre_tokenizer_name(const json::Value& tokenizer) {
  std::vector<std::string_view> steps;
  if (const json::Value* pre = json::find(tokenizer, "pre_tokenizer")) {
    const json::Value* several = json::find(*pre, "pretokenizers");
    if (several != nullptr && several->is_array()) {
      for (const json::Value& step : several->get_array()) steps.push_back(step_of(step));
    } else {
      steps.push_back(step_of(*pre));
    }
  }
  std::vector<std::string_view> names;
  for (const PreTokenizer& known : pre_tokenizers()) {
    if (steps == known.steps) return std::string(known.name);
    names.push_back(known.name);
  }
  return error(ErrorCode::kUnsupported,
               "tokenizer.json: its \"pre_tokenizer\" has no name in GGUF that Headwater writes; known are {}",
               fmt::join(names, ", "));
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> kinds;

  explicit Tokens(uint64_t count) : texts(count), kinds(count, kUnused) {
    for (uint64_t id = 0; id < count; ++id) texts[id] = fmt::format("[PAD{}]", id);
  }
  Status set(std::string_view text, const json::Value* id_value, Kind kind) {
    const std::optional<uint64_t> id = id_value == nullptr ? std::nullopt : json::to_unsigned(*id_value);
    if (!id || *id >= texts.size()) {
      return corrupt(fmt::format("a token's id is no integer below {}, the rows of the embedding", texts.size()));
    }
    texts[*id] = text;
    kinds[*id] = kind;
    return {};
  }
  // Where a special token of tokenizer_config.json stands: a string, or an object with "content".
  std::optional<uint32_t> id_of(const json::Value& config, std::string_view name) const {
    const json::Value* value = json::find(config, name);
    if (value == nullptr) return std::nullopt;
    const std::string_view text = value->is_string() ? json::text_at(config, name) : json::text_at(*value, "content");
    const auto found = std::ranges::find(texts, text);
    if (text.empty() || found == texts.end()) return std::nullopt;
    return static_cast<uint32_t>(found - texts.begin());
  }
};

Result<Tokens> read_tokens(const json::Value& tokenizer, const json::Value& model, uint64_t vocabulary) {
  Tokens tokens(vocabulary);
  const json::Value* words = json::find(model, "vocab");
  if (words == nullptr || !words->is_object()) return corrupt("no \"vocab\" object");
  for (const auto& [text, id] : words->get_object()) HEADWATER_RETURN_IF_ERROR(tokens.set(text, &id, kNormal));
  const json::Value* added = json::find(tokenizer, "added_tokens");
  if (added == nullptr || !added->is_array()) return tokens;
  for (const json::Value& token : added->get_array()) {
    const Kind kind = bool_at(token, "special", false) ? kControl : kUserDefined;
    HEADWATER_RETURN_IF_ERROR(tokens.set(json::text_at(token, "content"), json::find(token, "id"), kind));
  }
  return tokens;
}

// "a b", or in newer files ["a", "b"].
Result<std::vector<std::string>> read_merges(const json::Value& model) {
  const json::Value* merges = json::find(model, "merges");
  if (merges == nullptr || !merges->is_array()) return corrupt("no \"merges\" array");
  std::vector<std::string> texts;
  for (const json::Value& merge : merges->get_array()) {
    if (merge.is_string()) {
      texts.emplace_back(merge.get_string());
    } else if (merge.is_array() && merge.get_array().size() == 2 && merge.at(0).is_string() &&
               merge.at(1).is_string()) {
      texts.push_back(
          fmt::format("{} {}", std::string_view(merge.at(0).get_string()), std::string_view(merge.at(1).get_string())));
    } else {
      return corrupt("a merge is neither a string nor two");
    }
  }
  return texts;
}

// Whether a prompt begins with the beginning-of-sequence token: what the configuration says, else the post-processor.
bool adds_bos(const json::Value& tokenizer, const json::Value& config, std::string_view bos) {
  if (const json::Value* says = json::find(config, "add_bos_token"); says != nullptr && says->is_bool())
    return says->get_bool();
  const json::Value* processor = json::find(tokenizer, "post_processor");
  if (processor == nullptr) return false;
  std::vector<const json::Value*> processors{processor};
  if (const json::Value* several = json::find(*processor, "processors"); several != nullptr && several->is_array()) {
    for (const json::Value& one : several->get_array()) processors.push_back(&one);
  }
  return std::ranges::any_of(processors, [&](const json::Value* one) {
    const json::Value* single = json::find(*one, "single");
    if (single == nullptr || !single->is_array() || single->get_array().empty()) return false;
    const json::Value* special = json::find(single->at(0), "SpecialToken");
    return special != nullptr && !bos.empty() && json::text_at(*special, "id") == bos;
  });
}

std::string chat_template_of(const TokenizerTexts& texts, const json::Value& config) {
  if (!texts.chat_template.empty()) return std::string(texts.chat_template);
  const json::Value* value = json::find(config, "chat_template");
  if (value == nullptr || !value->is_array()) return std::string(json::text_at(config, "chat_template"));
  for (const json::Value& named : value->get_array()) {
    if (json::text_at(named, "name") == "default") return std::string(json::text_at(named, "template"));
  }
  return "";
}

}  // namespace

Status write_tokenizer(const TokenizerTexts& texts, uint64_t vocabulary, GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(const json::Value tokenizer, json::parse(texts.tokenizer, "tokenizer.json"));
  json::Value config;
  if (!texts.config.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(config, json::parse(texts.config, "tokenizer_config.json"));
  }
  const json::Value* model = json::find(tokenizer, "model");
  if (model == nullptr || json::text_at(*model, "type") != "BPE" || bool_at(*model, "byte_fallback", false)) {
    return error(ErrorCode::kUnsupported,
                 "tokenizer.json: its \"model\" is not byte-level BPE, which alone is written");
  }
  HEADWATER_ASSIGN_OR_RETURN(const std::string pre, pre_tokenizer_name(tokenizer));
  const json::Value* normalizer = json::find(tokenizer, "normalizer");
  if (normalizer != nullptr && !(pre == "qwen2" && json::text_at(*normalizer, "type") == "NFC")) {
    return error(ErrorCode::kUnsupported, "tokenizer.json: a \"normalizer\", which GGUF's {} has not", pre);
  }
  HEADWATER_ASSIGN_OR_RETURN(const Tokens tokens, read_tokens(tokenizer, *model, vocabulary));
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<std::string> merges, read_merges(*model));
  header.value("tokenizer.ggml.model", std::string("gpt2")).value("tokenizer.ggml.pre", pre);
  header.array("tokenizer.ggml.tokens", tokens.texts).array("tokenizer.ggml.token_type", tokens.kinds);
  header.array("tokenizer.ggml.merges", merges);
  constexpr std::pair<const char*, const char*> kSpecial[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                                              {"eos_token", "tokenizer.ggml.eos_token_id"},
                                                              {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                                              {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [from, to] : kSpecial) {
    if (const auto id = tokens.id_of(config, from)) header.value(to, *id);
  }
  const auto bos = tokens.id_of(config, "bos_token");
  header.value("tokenizer.ggml.add_bos_token", adds_bos(tokenizer, config, bos ? tokens.texts[*bos] : ""));
  const std::string chat_template = chat_template_of(texts, config);
  if (!chat_template.empty()) header.value("tokenizer.chat_template", chat_template);
  return {};
}

}  // namespace headwater::model
