// tokenizer.ggml.* as ggml/docs/gguf.md describes it. What those keys leave open is filled in as the models' own
// tokenizers do it (pre_tokenizer_rules.cc), and where the keys' defaults matter as llama.cpp's files expect.
#include "text/tokenizer_gguf.h"

#include "core/shown.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizer_rules.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {
namespace {

constexpr uint64_t kVocabularyMax = 1u << 22;
constexpr char kMark[] = "\u2581";
// Leading, trailing and repeated spaces.
constexpr char kExtraSpaces[] = R"((?<![\s\S]) +| +(?![\s\S])| +(?= ))";

Result<TokenId> read_id(const model::GgufFile& file, std::string_view key, size_t vocabulary) {
  if (!file.has(key)) return kNoToken;
  HEADWATER_ASSIGN_OR_RETURN(const uint64_t id, file.unsigned_at(key));
  if (id >= vocabulary) {
    return error(ErrorCode::kCorrupt, "{} is {}, but the vocabulary has {} tokens", key, id, vocabulary);
  }
  return static_cast<TokenId>(id);
}

Result<bool> read_flag(const model::GgufFile& file, std::string_view key, bool otherwise) {
  return file.has(key) ? file.bool_at(key) : Result<bool>(otherwise);
}

Result<std::optional<bool>> read_flag(const model::GgufFile& file, std::string_view key) {
  if (!file.has(key)) return std::optional<bool>();
  HEADWATER_ASSIGN_OR_RETURN(const bool flag, file.bool_at(key));
  return std::optional(flag);
}

Status read_types(const model::GgufFile& file, TokenizerSpec& spec) {
  static constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  if (!file.has(kKey)) return {};
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, file.integers_at(kKey));
  if (numbers.size() != spec.tokens.size()) {
    return error(ErrorCode::kCorrupt, "{} token types for {} tokens", numbers.size(), spec.tokens.size());
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 1 || numbers[i] > 6) {
      return error(ErrorCode::kCorrupt, "{}[{}] is {}; a token's type is 1 to 6", kKey, i, numbers[i]);
    }
    spec.types[i] = static_cast<TokenType>(numbers[i]);
  }
  return {};
}

Status read_scores(const model::GgufFile& file, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(spec.scores, file.numbers_at("tokenizer.ggml.scores"));
  if (spec.scores.size() != spec.tokens.size()) {
    return error(ErrorCode::kCorrupt, "{} scores for {} tokens", spec.scores.size(), spec.tokens.size());
  }
  return {};
}

Status read_merges(const model::GgufFile& file, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<std::string_view> merges, file.strings_at("tokenizer.ggml.merges"));
  if (merges.size() > kMergesMax) {
    return error(ErrorCode::kUnsupported, "the tokenizer has {} merges; at most {} are read", merges.size(),
                 kMergesMax);
  }
  spec.merges.reserve(merges.size());
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return error(ErrorCode::kCorrupt, "merge {} is {}; it needs two tokens with a space between", spec.merges.size(),
                   quoted(merge));
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

// BOS and EOS, their places around a plain prompt, and what else ends an answer. adds_...: where the file does not say.
Status read_ends(const model::GgufFile& file, std::optional<bool> adds_bos, std::optional<bool> adds_eos,
                 TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(spec.bos, read_id(file, "tokenizer.ggml.bos_token_id", spec.tokens.size()));
  HEADWATER_ASSIGN_OR_RETURN(spec.eos, read_id(file, "tokenizer.ggml.eos_token_id", spec.tokens.size()));
  for (const std::string_view key : kEndKeys) {
    HEADWATER_ASSIGN_OR_RETURN(const TokenId id, read_id(file, key, spec.tokens.size()));
    if (id != kNoToken) spec.end_of_turn.push_back(id);
  }
  if (file.has(kMoreEndsKey)) {
    HEADWATER_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, file.integers_at(kMoreEndsKey));
    for (const int64_t id : ids) {
      if (id < 0 || static_cast<uint64_t>(id) >= spec.tokens.size()) {
        return error(ErrorCode::kCorrupt, "{} holds {}, but the vocabulary has {} tokens", kMoreEndsKey, id,
                     spec.tokens.size());
      }
      spec.end_of_turn.push_back(static_cast<TokenId>(id));
    }
  }
  HEADWATER_ASSIGN_OR_RETURN(const auto says_bos, read_flag(file, "tokenizer.ggml.add_bos_token"));
  HEADWATER_ASSIGN_OR_RETURN(const auto says_eos, read_flag(file, "tokenizer.ggml.add_eos_token"));
  decide_ends(says_bos ? says_bos : adds_bos, says_eos ? says_eos : adds_eos, spec);
  return {};
}

// The whole tokenizer.json; the ids beside it are still those of GGUF's own keys.
Result<TokenizerSpec> read_whole(const model::GgufFile& file) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view text, file.string_at(kWholeTokenizerKey));
  Result<TokenizerSpec> spec = read_tokenizer_json(text);
  if (!spec) return error(spec.status().code(), "{}: {}", kWholeTokenizerKey, spec.status().message());
  HEADWATER_RETURN_IF_ERROR(read_ends(file, {}, {}, *spec));
  return spec;
}

void collect_added(TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const bool is_control = spec.types[id] == TokenType::kControl;
    if ((!is_control && spec.types[id] != TokenType::kUserDefined) || spec.tokens[id].empty()) continue;
    spec.added.push_back({.spelling = spec.tokens[id], .id = static_cast<TokenId>(id), .is_control = is_control});
  }
}

// Spaces become marks, and one is put in front where the file says so.
Status mark_spaces(const model::GgufFile& file, bool adds_prefix, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(adds_prefix, read_flag(file, "tokenizer.ggml.add_space_prefix", adds_prefix));
  if (adds_prefix) spec.normalizer.push_back({.kind = NormalizerStep::Kind::kPrepend, .content = " "});
  spec.normalizer.push_back({.kind = NormalizerStep::Kind::kReplace, .pattern = {" "}, .content = kMark});
  spec.space_mark = kMark;
  if (adds_prefix) spec.leading_space = TokenizerSpec::LeadingSpace::kOneDropped;
  return {};
}

Status read_unknown(const model::GgufFile& file, size_t otherwise, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(spec.unknown, read_id(file, "tokenizer.ggml.unknown_token_id", spec.tokens.size()));
  if (spec.unknown == kNoToken && otherwise < spec.tokens.size()) spec.unknown = static_cast<TokenId>(otherwise);
  return {};
}

Status read_byte_level(const model::GgufFile& file, TokenizerSpec& spec) {
  std::string_view name = "default";
  if (file.has("tokenizer.ggml.pre")) {
    HEADWATER_ASSIGN_OR_RETURN(name, file.string_at("tokenizer.ggml.pre"));
  }
  if (name == "gemma4") {
    return error(ErrorCode::kUnsupported, "tokenizer.ggml.pre is \"gemma4\", but tokenizer.ggml.model is not");
  }
  HEADWATER_ASSIGN_OR_RETURN(PreTokenizerRule rule, pre_tokenizer_rule(name));
  spec.pre_tokenizer = std::move(rule.steps);
  spec.ignores_merges = rule.ignores_merges;
  if (rule.is_composed) spec.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
  spec.is_byte_level = true;
  HEADWATER_RETURN_IF_ERROR(read_merges(file, spec));
  return read_ends(file, rule.adds_bos, false, spec);
}

Status read_gemma4(const model::GgufFile& file, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(PreTokenizerRule rule, pre_tokenizer_rule("gemma4"));
  spec.pre_tokenizer = std::move(rule.steps);
  spec.has_byte_fallback = true;
  spec.fuses_unknown = true;
  HEADWATER_RETURN_IF_ERROR(read_merges(file, spec));
  HEADWATER_RETURN_IF_ERROR(mark_spaces(file, false, spec));
  HEADWATER_RETURN_IF_ERROR(read_unknown(file, spec.tokens.size(), spec));
  return read_ends(file, rule.adds_bos, false, spec);
}

Status read_sentencepiece_bpe(const model::GgufFile& file, TokenizerSpec& spec) {
  spec.model = ModelKind::kScores;
  spec.has_byte_fallback = true;
  spec.fuses_unknown = true;
  HEADWATER_RETURN_IF_ERROR(read_scores(file, spec));
  HEADWATER_RETURN_IF_ERROR(mark_spaces(file, true, spec));
  HEADWATER_RETURN_IF_ERROR(read_unknown(file, 0, spec));
  return read_ends(file, true, false, spec);
}

Status read_unigram(const model::GgufFile& file, TokenizerSpec& spec) {
  static constexpr std::string_view kCharsmap = "tokenizer.ggml.precompiled_charsmap";
  spec.model = ModelKind::kUnigram;
  spec.has_byte_fallback = true;
  spec.fuses_unknown = true;
  spec.merges_user_defined = false;
  HEADWATER_RETURN_IF_ERROR(read_scores(file, spec));
  if (file.has(kCharsmap)) {
    HEADWATER_ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, file.integers_at(kCharsmap));
    NormalizerStep step{.kind = NormalizerStep::Kind::kCharsmap, .is_longest_prefix = true};
    for (const int64_t byte : bytes) step.content += static_cast<char>(byte);
    spec.normalizer.push_back(std::move(step));
  }
  HEADWATER_ASSIGN_OR_RETURN(const bool removes_spaces,
                             read_flag(file, "tokenizer.ggml.remove_extra_whitespaces", false));
  if (removes_spaces) {
    spec.normalizer.push_back({.kind = NormalizerStep::Kind::kReplace, .pattern = {kExtraSpaces, true}});
  }
  HEADWATER_RETURN_IF_ERROR(mark_spaces(file, false, spec));
  HEADWATER_RETURN_IF_ERROR(read_unknown(file, 2, spec));
  return read_ends(file, false, true, spec);
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_gguf(const model::GgufFile& file) {
  if (file.has(kWholeTokenizerKey)) return read_whole(file);
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view model, file.string_at("tokenizer.ggml.model"));
  TokenizerSpec spec;
  HEADWATER_ASSIGN_OR_RETURN(spec.tokens, file.strings_at("tokenizer.ggml.tokens"));
  if (spec.tokens.size() > kVocabularyMax) {
    return error(ErrorCode::kUnsupported, "the vocabulary has {} tokens; at most {} are read", spec.tokens.size(),
                 kVocabularyMax);
  }
  HEADWATER_RETURN_IF_ERROR(read_types(file, spec));
  collect_added(spec);
  spec.merges_user_defined = true;
  Status read;
  if (model == "gpt2") {
    read = read_byte_level(file, spec);
  } else if (model == "llama") {
    read = read_sentencepiece_bpe(file, spec);
  } else if (model == "t5") {
    read = read_unigram(file, spec);
  } else if (model == "gemma4") {
    read = read_gemma4(file, spec);
  } else {
    read = error(ErrorCode::kUnsupported,
                 "tokenizer.ggml.model is {}; read are \"gpt2\" (byte-level BPE), \"llama\" (SentencePiece BPE), "
                 "\"t5\" (unigram) and \"gemma4\"{}",
                 quoted(model), model == "bert" ? "; WordPiece is not" : "");
  }
  if (!read.is_ok()) return read;
  return spec;
}

}  // namespace headwater::text
