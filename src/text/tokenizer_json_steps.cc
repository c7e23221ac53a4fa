#include "text/tokenizer_json_steps.h"

#include <algorithm>
#include <array>

#include "core/shown.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizer_rules.h"
#include "text/utf8.h"

namespace headwater::text {
namespace {

namespace json = boost::json;

constexpr size_t kAroundMax = 1024;  // a short list of long lists of ids
constexpr char kPunctuation[] = R"([\p{P}$+<=>^`|~])";
constexpr char kWords[] =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

Status refuse(std::string_view what, std::string_view found) {
  return error(ErrorCode::kUnsupported, "tokenizer.json: {} {} is not supported", what, found);
}

Result<Pattern> read_pattern(const JsonFields& fields) {
  const json::value* value = fields.find("pattern");
  const json::object* object = value ? value->if_object() : nullptr;
  if (object && object->size() == 1) {
    const auto& [name, content] = *object->begin();
    const json::string* text = content.if_string();
    const bool is_expression = name == "Regex";
    if (text && (is_expression || name == "String")) return Pattern{std::string(*text), is_expression};
  }
  return error(ErrorCode::kCorrupt, "tokenizer.json: {} needs a pattern, {{\"String\": ...}} or {{\"Regex\": ...}}",
               fields.what());
}

Result<SplitBehavior> read_behavior(const JsonFields& fields, std::string_view otherwise) {
  static constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  std::string_view name = otherwise;
  if (fields.find("behavior")) {
    HEADWATER_ASSIGN_OR_RETURN(name, fields.string("behavior"));
  }
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return refuse(fields.what(), fmt::format("with behavior {}", quoted(name)));
}

Result<PreTokenizerStep::Prepend> read_prepend(const JsonFields& fields) {
  using Prepend = PreTokenizerStep::Prepend;
  HEADWATER_ASSIGN_OR_RETURN(const bool adds_prefix, fields.flag("add_prefix_space", true));
  if (!adds_prefix) return Prepend::kNever;
  if (!fields.find("prepend_scheme")) return Prepend::kAlways;
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view scheme, fields.string("prepend_scheme"));
  if (scheme == "always") return Prepend::kAlways;
  if (scheme == "first") return Prepend::kFirst;
  if (scheme == "never") return Prepend::kNever;
  return refuse(fields.what(), fmt::format("with prepend_scheme {}", quoted(scheme)));
}

// The members of a Sequence, each through `read`.
template <typename Read>
Status read_sequence(const json::value& value, std::string_view what, std::string_view list, Read read) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, what, {"type", list}));
  const json::value* members = fields.find(list);
  if (!members || !members->is_array()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: {} Sequence needs a list \"{}\"", what, list);
  }
  for (const json::value& member : members->get_array()) HEADWATER_RETURN_IF_ERROR(read(member));
  return {};
}

void add_split(std::string expression, SplitBehavior behavior, bool is_inverted, TokenizerSpec& spec) {
  spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kSplit,
                                .pattern = {std::move(expression), true},
                                .behavior = behavior,
                                .is_inverted = is_inverted});
}

Status read_split(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, "the pre_tokenizer Split",
                                                                         {"type", "pattern", "behavior", "invert"}));
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kSplit};
  HEADWATER_ASSIGN_OR_RETURN(step.pattern, read_pattern(fields));
  HEADWATER_ASSIGN_OR_RETURN(step.behavior, read_behavior(fields, ""));
  HEADWATER_ASSIGN_OR_RETURN(step.is_inverted, fields.flag("invert", false));
  spec.pre_tokenizer.push_back(std::move(step));
  return {};
}

Status read_byte_level(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                             JsonFields::create(value, "the pre_tokenizer ByteLevel",
                                                {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  HEADWATER_ASSIGN_OR_RETURN(const bool adds_prefix, fields.flag("add_prefix_space", true));
  HEADWATER_ASSIGN_OR_RETURN(const bool uses_regex, fields.flag("use_regex", true));
  if (spec.is_byte_level) return refuse(fields.what(), "a second time");
  spec.is_byte_level = true;
  if (adds_prefix) spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kPrefixSpace});
  if (uses_regex) add_split(std::string(kGpt2Words), SplitBehavior::kIsolated, false, spec);
  spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
  return {};
}

Status read_metaspace(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, "the pre_tokenizer Metaspace",
                                                                         {"type", "replacement", "add_prefix_space",
                                                                          "prepend_scheme", "split", "str_rep"}));
  const auto marks = [](const PreTokenizerStep& other) { return other.kind == PreTokenizerStep::Kind::kMetaspace; };
  // Splits between several would double a text with each.
  if (std::ranges::any_of(spec.pre_tokenizer, marks)) return refuse(fields.what(), "a second time");
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kMetaspace};
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view mark, fields.string("replacement"));
  if (count_characters(mark) != 1) return refuse(fields.what(), fmt::format("with the replacement {}", quoted(mark)));
  step.mark = mark;
  HEADWATER_ASSIGN_OR_RETURN(step.prepend, read_prepend(fields));
  HEADWATER_ASSIGN_OR_RETURN(step.splits, fields.flag("split", true));
  spec.pre_tokenizer.push_back(std::move(step));
  return {};
}

// Steps that are a Split by another name.
Status read_named_split(const json::value& value, std::string_view type, TokenizerSpec& spec) {
  const std::string what = fmt::format("the pre_tokenizer {}", type);
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                             JsonFields::create(value, what, {"type", "individual_digits", "behavior"}));
  if (type == "Whitespace") {
    add_split(kWords, SplitBehavior::kRemoved, true, spec);
  } else if (type == "WhitespaceSplit") {
    add_split(R"(\s)", SplitBehavior::kRemoved, false, spec);
  } else if (type == "Digits") {
    HEADWATER_ASSIGN_OR_RETURN(const bool individually, fields.flag("individual_digits", false));
    add_split(R"(\p{N})", individually ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false, spec);
  } else {
    HEADWATER_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(fields, "Isolated"));
    add_split(kPunctuation, behavior, false, spec);
  }
  return {};
}

Status read_form(NormalizerStep::Kind kind, const json::value& value, TokenizerSpec& spec) {
  HEADWATER_RETURN_IF_ERROR(JsonFields::create(value, "the normalizer", {"type"}).status());
  spec.normalizer.push_back({.kind = kind});
  return {};
}

Result<std::string> decode_base64(std::string_view text) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> values;
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t value = values[static_cast<uint8_t>(text[i])];
    if (value < 0) return error(ErrorCode::kCorrupt, "tokenizer.json: precompiled_charsmap is not base64 at {}", i);
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 > 0) bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)));
  }
  return bytes;
}

Status read_changing_normalizer(const json::value& value, std::string_view type, TokenizerSpec& spec) {
  const std::string what = fmt::format("the normalizer {}", type);
  NormalizerStep step{};
  if (type == "Strip") {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                               JsonFields::create(value, what, {"type", "strip_left", "strip_right"}));
    step.kind = NormalizerStep::Kind::kStrip;
    HEADWATER_ASSIGN_OR_RETURN(step.strips_left, fields.flag("strip_left", true));
    HEADWATER_ASSIGN_OR_RETURN(step.strips_right, fields.flag("strip_right", true));
  } else if (type == "Replace") {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                               JsonFields::create(value, what, {"type", "pattern", "content"}));
    step.kind = NormalizerStep::Kind::kReplace;
    HEADWATER_ASSIGN_OR_RETURN(step.pattern, read_pattern(fields));
    HEADWATER_ASSIGN_OR_RETURN(step.content, fields.string("content"));
  } else if (type == "Prepend") {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, what, {"type", "prepend"}));
    step.kind = NormalizerStep::Kind::kPrepend;
    HEADWATER_ASSIGN_OR_RETURN(step.content, fields.string("prepend"));
  } else {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                               JsonFields::create(value, what, {"type", "precompiled_charsmap"}));
    if (!fields.find("precompiled_charsmap")) return {};
    step.kind = NormalizerStep::Kind::kCharsmap;
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view base64, fields.string("precompiled_charsmap"));
    if (base64.empty()) return {};
    HEADWATER_ASSIGN_OR_RETURN(step.content, decode_base64(base64));
  }
  spec.normalizer.push_back(std::move(step));
  return {};
}

// The ids of a TemplateProcessing's own token.
Status append_template_token(const JsonFields& fields, std::string_view name, size_t vocabulary,
                             std::vector<TokenId>& out) {
  const json::value* tokens = fields.find("special_tokens");
  const json::object* object = tokens ? tokens->if_object() : nullptr;
  const json::value* token = object ? object->if_contains(name) : nullptr;
  const json::object* described = token ? token->if_object() : nullptr;
  const json::value* ids = described ? described->if_contains("ids") : nullptr;
  if (!ids || !ids->is_array()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: TemplateProcessing does not describe its token {}",
                 quoted(name));
  }
  for (const json::value& id : ids->get_array()) {
    const int64_t* number = id.if_int64();
    if (!number || *number < 0 || static_cast<uint64_t>(*number) >= vocabulary) {
      return error(ErrorCode::kCorrupt, "tokenizer.json: TemplateProcessing gives {} an id that no token has",
                   quoted(name));
    }
    if (out.size() == kAroundMax) {
      return error(ErrorCode::kUnsupported,
                   "tokenizer.json: TemplateProcessing puts more than {} tokens on one side of a text; at most these "
                   "are read",
                   kAroundMax);
    }
    out.push_back(static_cast<TokenId>(*number));
  }
  return {};
}

Status read_template(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, "the post_processor TemplateProcessing",
                                                                         {"type", "single", "pair", "special_tokens"}));
  const json::value* single = fields.find("single");
  if (!single || !single->is_array()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: {} needs a list \"single\"", fields.what());
  }
  bool has_sequence = false;
  for (const json::value& piece : single->get_array()) {
    const json::object* object = piece.if_object();
    const json::value* token = object ? object->if_contains("SpecialToken") : nullptr;
    if (object && object->contains("Sequence")) {
      if (has_sequence) return refuse(fields.what(), "with the text twice");
      has_sequence = true;
      continue;
    }
    const json::value* name = token && token->is_object() ? token->get_object().if_contains("id") : nullptr;
    if (!name || !name->is_string()) return refuse(fields.what(), "with a piece of another kind");
    HEADWATER_RETURN_IF_ERROR(append_template_token(fields, name->get_string(), spec.tokens.size(),
                                                    has_sequence ? spec.prompt_suffix : spec.prompt_prefix));
  }
  if (!has_sequence) return refuse(fields.what(), "without the text");
  return {};
}

Status read_mark_replacement(const JsonFields& fields, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(fields));
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view content, fields.string("content"));
  if (pattern.is_expression || pattern.text.empty() || content != " " || !spec.space_mark.empty()) {
    return refuse(fields.what(), "other than of one string by a space");
  }
  spec.space_mark = pattern.text;
  return {};
}

Status read_leading_strip(const JsonFields& fields, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view content, fields.string("content"));
  const auto is_count = [&](std::string_view name, int64_t wanted) {
    const json::value* count = fields.find(name);
    return count && count->is_int64() && count->get_int64() == wanted;
  };
  if (content != " " || !is_count("start", 1) || !is_count("stop", 0)) {
    return refuse(fields.what(), "other than of one space in front");
  }
  spec.leading_space = TokenizerSpec::LeadingSpace::kOneDropped;
  return {};
}

}  // namespace

Result<JsonFields> JsonFields::create(const json::value& value, std::string_view what,
                                      std::initializer_list<std::string_view> known) {
  JsonFields fields;
  fields.what_ = what;
  fields.object_ = value.if_object();
  if (!fields.object_) return error(ErrorCode::kCorrupt, "tokenizer.json: {} is not an object", what);
  for (const auto& field : *fields.object_) {
    const std::string_view name = field.key();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return refuse(what, fmt::format("with the field {}", quoted(name)));
    }
  }
  return fields;
}

const json::value* JsonFields::find(std::string_view name) const {
  const json::value* value = object_->if_contains(name);
  return value && value->is_null() ? nullptr : value;
}

Result<std::string_view> JsonFields::string(std::string_view name) const {
  const json::value* value = find(name);
  if (!value || !value->is_string()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: {} needs a string \"{}\"", what_, name);
  }
  return std::string_view(value->get_string());
}

Result<bool> JsonFields::flag(std::string_view name, bool otherwise) const {
  const json::value* value = find(name);
  if (!value) return otherwise;
  if (!value->is_bool()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: \"{}\" of {} is not true or false", name, what_);
  }
  return value->get_bool();
}

Result<std::string_view> type_of(const json::value& value, std::string_view what) {
  const json::object* object = value.if_object();
  const json::value* type = object ? object->if_contains("type") : nullptr;
  if (!type || !type->is_string()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: {} needs a string \"type\"", what);
  }
  return std::string_view(type->get_string());
}

Status read_normalizer(const json::value& value, TokenizerSpec& spec) {
  static constexpr std::pair<std::string_view, NormalizerStep::Kind> kForms[] = {
      {"NFC", NormalizerStep::Kind::kNfc},
      {"NFD", NormalizerStep::Kind::kNfd},
      {"NFKC", NormalizerStep::Kind::kNfkc},
      {"NFKD", NormalizerStep::Kind::kNfkd},
      {"Lowercase", NormalizerStep::Kind::kLowercase},
      {"StripAccents", NormalizerStep::Kind::kStripAccents},
  };
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view type, type_of(value, "a normalizer"));
  for (const auto& [name, kind] : kForms) {
    if (type == name) return read_form(kind, value, spec);
  }
  if (type == "Sequence") {
    return read_sequence(value, "the normalizer", "normalizers",
                         [&](const json::value& member) { return read_normalizer(member, spec); });
  }
  if (type == "Strip" || type == "Replace" || type == "Prepend" || type == "Precompiled") {
    return read_changing_normalizer(value, type, spec);
  }
  return refuse("the normalizer", shown(type));
}

Status read_pre_tokenizer(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view type, type_of(value, "a pre_tokenizer"));
  if (type == "Sequence") {
    return read_sequence(value, "the pre_tokenizer", "pretokenizers",
                         [&](const json::value& member) { return read_pre_tokenizer(member, spec); });
  }
  if (type == "Split") return read_split(value, spec);
  if (type == "ByteLevel") return read_byte_level(value, spec);
  if (type == "Metaspace") return read_metaspace(value, spec);
  if (type == "Whitespace" || type == "WhitespaceSplit" || type == "Digits" || type == "Punctuation") {
    return read_named_split(value, type, spec);
  }
  return refuse("the pre_tokenizer", shown(type));
}

Status read_post_processor(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view type, type_of(value, "a post_processor"));
  if (type == "ByteLevel") return {};  // moves offsets alone
  if (type == "Sequence") {
    return read_sequence(value, "the post_processor", "processors",
                         [&](const json::value& member) { return read_post_processor(member, spec); });
  }
  if (type == "TemplateProcessing") return read_template(value, spec);
  return refuse("the post_processor", shown(type));
}

Status read_decoder(const json::value& value, TokenizerSpec& spec) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view type, type_of(value, "a decoder"));
  const std::string what = fmt::format("the decoder {}", type);
  if (type == "Sequence") {
    return read_sequence(value, "the decoder", "decoders",
                         [&](const json::value& member) { return read_decoder(member, spec); });
  }
  if (type == "ByteLevel") {
    return spec.is_byte_level ? Status() : refuse(what, "without the pre_tokenizer ByteLevel");
  }
  if (type == "Fuse") return {};
  if (type == "ByteFallback") {
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      if (byte_of_token(spec.tokens[id])) spec.types[id] = TokenType::kByte;
    }
    return {};
  }
  if (type == "Replace") {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                               JsonFields::create(value, what, {"type", "pattern", "content"}));
    return read_mark_replacement(fields, spec);
  }
  if (type == "Strip") {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields,
                               JsonFields::create(value, what, {"type", "content", "start", "stop"}));
    return read_leading_strip(fields, spec);
  }
  if (type == "Metaspace") {
    HEADWATER_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::create(value, what,
                                                                           {"type", "replacement", "add_prefix_space",
                                                                            "prepend_scheme", "split", "str_rep"}));
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view mark, fields.string("replacement"));
    HEADWATER_ASSIGN_OR_RETURN(const PreTokenizerStep::Prepend prepend, read_prepend(fields));
    spec.space_mark = mark;
    if (prepend != PreTokenizerStep::Prepend::kNever) {
      spec.leading_space = TokenizerSpec::LeadingSpace::kOfFirstTokenDropped;
    }
    return {};
  }
  return refuse("the decoder", shown(type));
}

}  // namespace headwater::text
