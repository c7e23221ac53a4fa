#include "text/tokenizer_spec.h"

namespace headwater::text {
namespace {

constexpr uint64_t kVocabularyMax = 1u << 24;

Result<TokenId> read_id(const model::GgufFile& file, std::string_view key, size_t vocabulary) {
  if (!file.has(key)) return kNoToken;
  HEADWATER_ASSIGN_OR_RETURN(const uint64_t id, file.unsigned_at(key));
  if (id >= vocabulary) {
    return error(ErrorCode::kCorrupt, "{} is {}, but the vocabulary has {} tokens", key, id, vocabulary);
  }
  return static_cast<TokenId>(id);
}

Result<std::vector<TokenType>> read_types(const model::GgufFile& file, size_t vocabulary) {
  static constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (!file.has(kKey)) return std::vector<TokenType>(vocabulary, TokenType::kNormal);
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, file.integers_at(kKey));
  std::vector<TokenType> types;
  for (const int64_t number : numbers) {
    if (number < 1 || number > 6) {
      return error(ErrorCode::kCorrupt, "{}[{}] is {}; a token's type is 1 to 6", kKey, types.size(), number);
    }
    types.push_back(static_cast<TokenType>(number));
  }
  return types;
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_spec(const model::GgufFile& file) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view model, file.string_at("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return error(ErrorCode::kUnsupported, "tokenizer.ggml.model is \"{}\"; only \"gpt2\" (byte-level BPE) is read",
                 model);
  }
  TokenizerSpec spec;
  HEADWATER_ASSIGN_OR_RETURN(spec.tokens, file.strings_at("tokenizer.ggml.tokens"));
  if (spec.tokens.size() > kVocabularyMax) {
    return error(ErrorCode::kUnsupported, "the vocabulary has {} tokens; at most {} are read", spec.tokens.size(),
                 kVocabularyMax);
  }
  HEADWATER_ASSIGN_OR_RETURN(spec.merges, file.strings_at("tokenizer.ggml.merges"));
  HEADWATER_ASSIGN_OR_RETURN(spec.types, read_types(file, spec.tokens.size()));
  if (file.has("tokenizer.ggml.pre")) {
    HEADWATER_ASSIGN_OR_RETURN(spec.pre_tokenizer, file.string_at("tokenizer.ggml.pre"));
  }
  HEADWATER_ASSIGN_OR_RETURN(spec.bos, read_id(file, "tokenizer.ggml.bos_token_id", spec.tokens.size()));
  HEADWATER_ASSIGN_OR_RETURN(spec.eos, read_id(file, "tokenizer.ggml.eos_token_id", spec.tokens.size()));
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    HEADWATER_ASSIGN_OR_RETURN(const TokenId id, read_id(file, key, spec.tokens.size()));
    if (id != kNoToken) spec.end_of_turn.push_back(id);
  }
  if (file.has("tokenizer.ggml.add_bos_token")) {
    HEADWATER_ASSIGN_OR_RETURN(spec.add_bos, file.bool_at("tokenizer.ggml.add_bos_token"));
  }
  if (file.has("tokenizer.ggml.add_eos_token")) {
    HEADWATER_ASSIGN_OR_RETURN(spec.add_eos, file.bool_at("tokenizer.ggml.add_eos_token"));
  }
  return spec;
}

}  // namespace headwater::text
