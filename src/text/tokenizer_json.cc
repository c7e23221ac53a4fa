// The file format of the Python package `tokenizers` (Hugging Face), version 1.0, as its documentation and its own files
// describe it. truncation and padding are not read: they do not change the ids of a text that fits.
#include <algorithm>
#include <cmath>

#include "core/shown.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_json_document.h"
#include "text/tokenizer_json_steps.h"

namespace headwater::text {
namespace {

namespace json = boost::json;

constexpr size_t kVocabularyMax = 1u << 22;

Result<TokenId> read_id(const json::value* value, std::string_view what) {
  const int64_t* number = value ? value->if_int64() : nullptr;
  if (!number || *number < 0 || *number >= static_cast<int64_t>(kVocabularyMax)) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: {} needs an id from 0 to {}", what, kVocabularyMax - 1);
  }
  return static_cast<TokenId>(*number);
}

void resize(size_t tokens, TokenizerSpec& spec) {
  spec.tokens.resize(tokens);
  spec.types.resize(tokens, TokenType::kNormal);
  if (spec.model == ModelKind::kUnigram) spec.scores.resize(tokens, 0);
}

// Ids need not be dense, but nothing is allocated for a number that only claims to be one.
Status read_vocabulary(const TokenizerDocument& document, size_t added, TokenizerSpec& spec) {
  const size_t count = document.spellings.size();
  const size_t ids_max = std::min(2 * (count + added) + 1024, kVocabularyMax);
  if (count > kVocabularyMax) {
    return error(ErrorCode::kUnsupported, "tokenizer.json has {} tokens; at most {} are read", count, kVocabularyMax);
  }
  resize(count, spec);
  size_t ids = document.numbers_are_scores ? count : 0;
  for (size_t i = 0; i < count; ++i) {
    const double number = document.numbers[i];
    if (document.numbers_are_scores) {
      spec.tokens[i] = document.of(document.spellings[i]);
      spec.scores[i] = number;
      continue;
    }
    if (!(number >= 0 && number < static_cast<double>(ids_max)) || number != std::floor(number)) {
      return error(ErrorCode::kCorrupt, "tokenizer.json: token {} of {} has the id {}; ids are whole and below {}", i,
                   count, number, ids_max);
    }
    const auto id = static_cast<size_t>(number);
    ids = std::max(ids, id + 1);
    if (id >= spec.tokens.size()) resize(id + 1, spec);
    if (spec.has_byte_fallback && byte_of_token(spec.tokens[id])) continue;  // may have a second name, its character
    spec.tokens[id] = document.of(document.spellings[i]);
  }
  resize(ids, spec);
  return {};
}

Status read_merges(const TokenizerDocument& document, TokenizerSpec& spec) {
  const size_t step = document.merges_are_pairs ? 2 : 1, count = document.merges.size() / step;
  if (count > kMergesMax) {
    return error(ErrorCode::kUnsupported, "tokenizer.json has {} merges; at most {} are read", count, kMergesMax);
  }
  spec.merges.reserve(count);
  for (size_t i = 0; i < document.merges.size(); i += step) {
    const std::string_view merge = document.of(document.merges[i]);
    if (document.merges_are_pairs) {
      spec.merges.emplace_back(merge, document.of(document.merges[i + 1]));
      continue;
    }
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      return error(ErrorCode::kCorrupt, "tokenizer.json: merge {} is {}; it needs two tokens with a space between", i,
                   quoted(merge));
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

Status read_bpe(const json::value& value, const TokenizerDocument& document, size_t added, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(
      const JsonFields fields,
      JsonFields::create(value, "the model BPE",
                         {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                          "byte_fallback", "ignore_merges", "vocab", "merges"}));
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json::value* affix = fields.find(name);
    if (affix && !(affix->is_string() && affix->get_string().empty())) {
      return error(ErrorCode::kUnsupported, "tokenizer.json: the model BPE with {} is not supported", name);
    }
  }
  const json::value* dropout = fields.find("dropout");
  if (dropout && !(dropout->is_number() && dropout->to_number<double>() == 0)) {
    return error(ErrorCode::kUnsupported, "tokenizer.json: the model BPE with dropout is not supported");
  }
  if (document.numbers_are_scores) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: the vocabulary of the model BPE needs ids, not scores");
  }
  HEADWATER_ASSIGN_OR_RETURN(spec.has_byte_fallback, fields.flag("byte_fallback", false));
  HEADWATER_ASSIGN_OR_RETURN(spec.fuses_unknown, fields.flag("fuse_unk", false));
  HEADWATER_ASSIGN_OR_RETURN(spec.ignores_merges, fields.flag("ignore_merges", false));
  HEADWATER_RETURN_IF_ERROR(read_vocabulary(document, added, spec));
  if (fields.find("unk_token")) {
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view unknown, fields.string("unk_token"));
    const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), unknown);
    if (found == spec.tokens.end()) {
      return error(ErrorCode::kCorrupt, "tokenizer.json: the vocabulary lacks the unknown token {}", quoted(unknown));
    }
    spec.unknown = static_cast<TokenId>(found - spec.tokens.begin());
  }
  return read_merges(document, spec);
}

Status read_unigram(const json::value& value, const TokenizerDocument& document, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, "the model Unigram",
                                                                         {"type", "unk_id", "vocab", "byte_fallback"}));
  if (!document.numbers_are_scores) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: the vocabulary of the model Unigram needs scores, not ids");
  }
  spec.model = ModelKind::kUnigram;
  spec.fuses_unknown = true;
  HEADWATER_ASSIGN_OR_RETURN(spec.has_byte_fallback, fields.flag("byte_fallback", false));
  HEADWATER_RETURN_IF_ERROR(read_vocabulary(document, 0, spec));
  if (const json::value* unknown = fields.find("unk_id")) {
    HEADWATER_ASSIGN_OR_RETURN(spec.unknown, read_id(unknown, "unk_id"));
    if (static_cast<size_t>(spec.unknown) >= spec.tokens.size()) {
      return error(ErrorCode::kCorrupt, "tokenizer.json: unk_id is {}, but the vocabulary has {} tokens", spec.unknown,
                   spec.tokens.size());
    }
  }
  return {};
}

// The model's vocabulary may hold the token already.
Status read_added(const json::value& value, size_t ids_max, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, "an added token",
                                                                         {"id", "content", "single_word", "lstrip",
                                                                          "rstrip", "normalized", "special"}));
  AddedToken token{};
  HEADWATER_ASSIGN_OR_RETURN(token.spelling, fields.string("content"));
  HEADWATER_ASSIGN_OR_RETURN(token.id, read_id(fields.find("id"), fields.what()));
  HEADWATER_ASSIGN_OR_RETURN(token.is_control, fields.flag("special", false));
  HEADWATER_ASSIGN_OR_RETURN(token.is_normalized, fields.flag("normalized", !token.is_control));
  HEADWATER_ASSIGN_OR_RETURN(token.is_single_word, fields.flag("single_word", false));
  HEADWATER_ASSIGN_OR_RETURN(token.strips_left, fields.flag("lstrip", false));
  HEADWATER_ASSIGN_OR_RETURN(token.strips_right, fields.flag("rstrip", false));
  const auto id = static_cast<size_t>(token.id);
  if (token.spelling.empty()) return {};
  if (id >= ids_max) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: the added token {} has the id {}; ids are below {}",
                 quoted(token.spelling), token.id, ids_max);
  }
  if (id >= spec.tokens.size()) resize(id + 1, spec);
  if (!spec.tokens[id].empty() && spec.tokens[id] != token.spelling) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: id {} is both {} and {}", token.id, quoted(spec.tokens[id]),
                 quoted(token.spelling));
  }
  if (token.is_control) {
    spec.types[id] = TokenType::kControl;
  } else if (spec.tokens[id].empty()) {
    spec.types[id] = TokenType::kUserDefined;
  }
  spec.tokens[id] = token.spelling;
  spec.added.push_back(token);
  return {};
}

Status read_model(const json::value& value, const TokenizerDocument& document, size_t added, TokenizerSpec& spec) {
  // Files of before 0.12 have no type; their model is told by its fields, which only BPE's are for.
  const json::object* object = value.if_object();
  std::string_view type = "BPE";
  if (!object || object->contains("type") || !object->contains("merges")) {
    HEADWATER_ASSIGN_OR_RETURN(type, type_of(value, "the model"));
  }
  if (type == "BPE") return read_bpe(value, document, added, spec);
  if (type == "Unigram") return read_unigram(value, document, spec);
  return error(ErrorCode::kUnsupported, "tokenizer.json: the model {} is not supported; BPE and Unigram are",
               quoted(type));
}

Status read_parts(const JsonFields& fields, const TokenizerDocument& document, TokenizerSpec& spec) {
  const json::value* added = fields.find("added_tokens");
  if (added && !added->is_array()) return error(ErrorCode::kCorrupt, "tokenizer.json: added_tokens is not a list");
  const size_t added_count = added ? added->get_array().size() : 0;
  const json::value* model = fields.find("model");
  if (!model) return error(ErrorCode::kCorrupt, "tokenizer.json has no model");
  HEADWATER_RETURN_IF_ERROR(read_model(*model, document, added_count, spec));
  if (spec.unknown != kNoToken) spec.types[static_cast<size_t>(spec.unknown)] = TokenType::kUnknown;
  const size_t ids_max = std::min(spec.tokens.size() + 2 * added_count + 1024, kVocabularyMax);
  for (size_t i = 0; i < added_count; ++i) {
    HEADWATER_RETURN_IF_ERROR(read_added(added->get_array()[i], ids_max, spec));
  }
  if (const json::value* value = fields.find("normalizer")) HEADWATER_RETURN_IF_ERROR(read_normalizer(*value, spec));
  if (const json::value* value = fields.find("pre_tokenizer"))
    HEADWATER_RETURN_IF_ERROR(read_pre_tokenizer(*value, spec));
  if (const json::value* value = fields.find("post_processor")) {
    HEADWATER_RETURN_IF_ERROR(read_post_processor(*value, spec));
  }
  const json::value* decoder = fields.find("decoder");
  if (!decoder) return error(ErrorCode::kUnsupported, "tokenizer.json without a decoder is not supported");
  HEADWATER_RETURN_IF_ERROR(read_decoder(*decoder, spec));
  const bool decodes_bytes = std::find(spec.types.begin(), spec.types.end(), TokenType::kByte) != spec.types.end();
  if (spec.has_byte_fallback && !decodes_bytes) {
    return error(ErrorCode::kUnsupported,
                 "tokenizer.json: byte_fallback without the decoder ByteFallback is not supported");
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(std::string_view text) {
  HEADWATER_ASSIGN_OR_RETURN(TokenizerDocument parsed, parse_tokenizer_document(text));
  const auto owned = std::make_shared<const TokenizerDocument>(std::move(parsed));  // views point into it from here on
  const TokenizerDocument& document = *owned;
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                             JsonFields::create(document.rest, "the file",
                                                {"version", "truncation", "padding", "added_tokens", "normalizer",
                                                 "pre_tokenizer", "post_processor", "decoder", "model"}));
  const json::value* version = fields.find("version");
  if (version && !(version->is_string() && version->get_string() == "1.0")) {
    return error(ErrorCode::kUnsupported, "tokenizer.json has another version than \"1.0\"");
  }
  TokenizerSpec spec;
  HEADWATER_RETURN_IF_ERROR(read_parts(fields, document, spec));
  spec.owned = owned;
  return spec;
}

}  // namespace headwater::text
