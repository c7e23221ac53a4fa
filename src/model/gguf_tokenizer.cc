#include "model/gguf_tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/json.h"
#include "model/names.h"

namespace headwater::model {
namespace {

// tokenizer.ggml.token_type
enum Kind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

bool bool_at(const json::Value& object, std::string_view name, bool absent) {
  const json::Value* value = json::find(object, name);
  return value != nullptr && value->is_bool() ? value->get_bool() : absent;
}

Status corrupt(std::string_view what) {
  return error(ErrorCode::kCorrupt, "tokenizer.json: {}", what);
}

// A pre-tokeniser by its steps, one word or expression each, and GGUF's name of it (tokenizer.ggml.pre), which may also say
// whether a word that is a token is taken without merges.
struct PreTokenizer {
  std::string_view name;
  std::vector<std::string_view> steps;
  std::optional<bool> ignores_merges = {};
};

constexpr std::string_view kGpt2Words = "ByteLevel with its words";
constexpr std::string_view kBytes = "ByteLevel";
constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oWords =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> kAll = {{"gpt-2", {kGpt2Words}},
                                                 {"smollm", {"each digit", kGpt2Words}},
                                                 {"llama-bpe", {kLlama3Words, kBytes}, true},
                                                 {"dbrx", {kLlama3Words, kBytes}, false},
                                                 {"qwen2", {kQwen2Words, kBytes}},
                                                 {"tekken", {kTekkenWords, kBytes}, true},
                                                 {"gpt-4o", {kGpt4oWords, kBytes}}};
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
  const bool ignores_merges = bool_at(*json::find(tokenizer, "model"), "ignore_merges", false);
  std::vector<std::string_view> names;
  for (const PreTokenizer& known : pre_tokenizers()) {
    if (steps == known.steps && known.ignores_merges.value_or(ignores_merges) == ignores_merges) {
      return std::string(known.name);
    }
    names.push_back(known.name);
  }
  return error(ErrorCode::kUnsupported,
               "tokenizer.json: its \"pre_tokenizer\" has no name in GGUF that Headwater writes; known are {}",
               fmt::join(names, ", "));
}

constexpr std::string_view kMark = "\u2581";

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
    if (kinds[*id] == kByte) return {};  // which may have a second name, its character
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

bool is_byte_name(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
}

Result<Tokens> read_tokens(const json::Value& tokenizer, const json::Value& model, uint64_t vocabulary) {
  Tokens tokens(vocabulary);
  const json::Value* words = json::find(model, "vocab");
  if (words == nullptr || !words->is_object()) return corrupt("no \"vocab\" object");
  const bool has_bytes = bool_at(model, "byte_fallback", false);
  for (const auto& [text, id] : words->get_object()) {
    HEADWATER_RETURN_IF_ERROR(tokens.set(text, &id, has_bytes && is_byte_name(text) ? kByte : kNormal));
  }
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
    if (merge.is_string() && merge.get_string().find(' ', 1) != std::string_view::npos) {
      texts.emplace_back(merge.get_string());
    } else if (merge.is_array() && merge.get_array().size() == 2 && merge.at(0).is_string() &&
               merge.at(1).is_string()) {
      texts.push_back(
          fmt::format("{} {}", std::string_view(merge.at(0).get_string()), std::string_view(merge.at(1).get_string())));
    } else {
      return corrupt("a merge is neither two strings nor one with a space between two");
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

// Whether a file of SentencePiece puts a mark in front of a text as it does for every space; none for another kind of file.
std::optional<bool> marks_front(const json::Value& tokenizer) {
  const json::Value* normalizer = json::find(tokenizer, "normalizer");
  const json::Value* pre = json::find(tokenizer, "pre_tokenizer");
  const auto marks_spaces = [](const json::Value& step) {
    const json::Value* pattern = json::find(step, "pattern");
    return json::text_at(step, "type") == "Replace" && json::text_at(step, "content") == kMark && pattern != nullptr &&
           json::text_at(*pattern, "String") == " ";
  };
  if (normalizer == nullptr) return std::nullopt;
  if (marks_spaces(*normalizer)) {  // a cut at spaces, of which none is left, does nothing
    const json::Value* pattern = pre == nullptr ? nullptr : json::find(*pre, "pattern");
    const bool is_idle = pattern != nullptr && json::text_at(*pattern, "String") == " ";
    return pre == nullptr || is_idle ? std::optional(false) : std::nullopt;
  }
  const json::Value* several = json::find(*normalizer, "normalizers");
  if (pre != nullptr || several == nullptr || !several->is_array() || several->get_array().size() != 2) {
    return std::nullopt;
  }
  const json::Value& first = several->at(0);
  const bool prepends = json::text_at(first, "type") == "Prepend" && json::text_at(first, "prepend") == kMark;
  return prepends && marks_spaces(several->at(1)) ? std::optional(true) : std::nullopt;
}

// GGUF keeps no merges of SentencePiece but a score of each token: any two neighbours that make a token are joined, the best
// score first. Its converters make merges of scores: all that give a token, by falling score, then by falling lengths of both
// halves. This goes back, and refuses merges that were made otherwise.
class Scores {
 public:
  explicit Scores(const Tokens& tokens) : tokens_(tokens) {
    for (size_t id = 0; id < tokens.texts.size(); ++id) {
      if (tokens.kinds[id] == kNormal) ids_.emplace(tokens.texts[id], id);
    }
  }

  Result<std::vector<float>> of(const std::vector<std::string>& merges) {
    for (const std::string& merge : merges) add(merge);
    for (const auto& [text, id] : ids_) {
      if (text.size() > kTokenMax) {
        return error(ErrorCode::kUnsupported, "tokenizer.json: token {} has {} bytes; the limit is {}", id, text.size(),
                     kTokenMax);
      }
      for (size_t at = 1; at < text.size(); ++at) {
        if (!ids_.contains(text.substr(0, at)) || !ids_.contains(text.substr(at))) continue;
        if (!pairs_.contains(fmt::format("{} {}", text.substr(0, at), text.substr(at)))) return refusal(id);
      }
    }
    std::vector<float> scores(tokens_.texts.size(), kNever);
    for (size_t begin = 0, end = 0; begin < joins_.size(); begin = end) {
      end = begin + 1;
      for (size_t i = begin; i < end; ++i) {
        end = std::max(end, last_.at(joins_[i].id) + 1);
        scores[joins_[i].id] = -static_cast<float>(begin);
      }
      const bool one_score = std::is_sorted(&joins_[begin], &joins_[begin] + (end - begin), [](auto& x, auto& y) {
        return std::pair(x.left, x.right) > std::pair(y.left, y.right);
      });
      const bool one_token = std::ranges::all_of(&joins_[begin], &joins_[begin] + (end - begin),
                                                 [&](const Join& join) { return join.id == joins_[begin].id; });
      if (!one_token && !one_score) return refusal(joins_[begin].id);
    }
    return scores;
  }

 private:
  static constexpr float kNever = -1e9f;     // of what no merge makes
  static constexpr size_t kTokenMax = 1024;  // bytes; all cuts of a token are looked up
  struct Join {
    size_t id;
    size_t left, right;  // characters of the halves
  };

  static size_t characters(std::string_view text) {
    return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  }
  void add(std::string_view merge) {
    const size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const auto found = ids_.find(fmt::format("{}{}", left, right));
    if (found == ids_.end()) return;  // an added token, which no merge makes
    pairs_.insert(merge);
    last_[found->second] = joins_.size();
    joins_.push_back({found->second, characters(left), characters(right)});
  }
  Status refusal(size_t id) const {
    return error(
        ErrorCode::kUnsupported,
        "tokenizer.json: the merges around \"{}\" do not come from scores, and GGUF keeps scores alone: use the "
        "folder as it is",
        without_controls(tokens_.texts[id]));
  }

  const Tokens& tokens_;
  std::unordered_map<std::string_view, size_t> ids_;  // of tokens that can be joined
  std::unordered_set<std::string_view> pairs_;
  std::vector<Join> joins_;                  // in the order of the merges
  std::unordered_map<size_t, size_t> last_;  // of each token: its last join
};

Status write_byte_level(const json::Value& tokenizer, const std::vector<std::string>& merges, GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string pre, pre_tokenizer_name(tokenizer));
  const json::Value* normalizer = json::find(tokenizer, "normalizer");
  if (normalizer != nullptr && !(pre == "qwen2" && json::text_at(*normalizer, "type") == "NFC")) {
    return error(ErrorCode::kUnsupported, "tokenizer.json: a \"normalizer\", which GGUF's {} has not", pre);
  }
  header.value("tokenizer.ggml.model", std::string("gpt2")).value("tokenizer.ggml.pre", pre);
  header.array("tokenizer.ggml.merges", merges);
  return {};
}

Status write_sentencepiece(const json::Value& tokenizer, const json::Value& model, Tokens& tokens,
                           const std::vector<std::string>& merges, GgufHeader& header) {
  const std::optional<bool> adds_prefix = marks_front(tokenizer);
  if (!adds_prefix) {
    return error(
        ErrorCode::kUnsupported,
        "tokenizer.json: its \"normalizer\" and \"pre_tokenizer\" are not those of SentencePiece that GGUF has: "
        "Replace of spaces by {}, with Prepend or without",
        kMark);
  }
  const auto unknown = tokens.id_of(model, "unk_token");
  if (unknown && tokens.kinds[*unknown] == kNormal) tokens.kinds[*unknown] = kUnknown;
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<float> scores, Scores(tokens).of(merges));
  header.value("tokenizer.ggml.model", std::string("llama")).value("tokenizer.ggml.pre", std::string("default"));
  header.array("tokenizer.ggml.scores", scores).value("tokenizer.ggml.add_space_prefix", *adds_prefix);
  return {};
}

}  // namespace

Status write_tokenizer(const TokenizerTexts& texts, uint64_t vocabulary, GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(const json::Value tokenizer, json::parse(texts.tokenizer, "tokenizer.json"));
  json::Value config;
  if (!texts.config.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(config, json::parse(texts.config, "tokenizer_config.json"));
  }
  const json::Value* model = json::find(tokenizer, "model");
  if (model == nullptr || json::text_at(*model, "type") != "BPE") {
    return error(ErrorCode::kUnsupported, "tokenizer.json: its \"model\" is not BPE, which alone is written");
  }
  HEADWATER_ASSIGN_OR_RETURN(Tokens tokens, read_tokens(tokenizer, *model, vocabulary));
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<std::string> merges, read_merges(*model));
  if (bool_at(*model, "byte_fallback", false)) {
    HEADWATER_RETURN_IF_ERROR(write_sentencepiece(tokenizer, *model, tokens, merges, header));
  } else {
    HEADWATER_RETURN_IF_ERROR(write_byte_level(tokenizer, merges, header));
  }
  header.array("tokenizer.ggml.tokens", tokens.texts).array("tokenizer.ggml.token_type", tokens.kinds);
  constexpr std::pair<const char*, const char*> kSpecial[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                                              {"eos_token", "tokenizer.ggml.eos_token_id"},
                                                              {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                                              {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [from, to] : kSpecial) {
    auto id = tokens.id_of(config, from);
    if (!id) id = tokens.id_of(*model, from);  // its unk_token
    if (id) header.value(to, *id);
  }
  const auto bos = tokens.id_of(config, "bos_token");
  header.value("tokenizer.ggml.add_bos_token", adds_bos(tokenizer, config, bos ? tokens.texts[*bos] : ""));
  const std::string chat_template = chat_template_of(texts, config);
  if (!chat_template.empty()) header.value("tokenizer.chat_template", chat_template);
  return {};
}

}  // namespace headwater::model
