#include "server/openai/prompt.h"

#include <algorithm>

namespace headwater::server::openai {
namespace {

namespace json = boost::json;

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

std::optional<ApiError> read_prompt(const json::value& value, bool special, const ServedModel& served,
                                    std::vector<TokenId>& ids, std::string* text) {
  if (value.is_string()) {
    if (auto failed = check_text_length("prompt", value.as_string().size(), served)) return failed;
    if (auto failed = encode_text("prompt", view(value.as_string()), special, served, ids)) return failed;
    if (text != nullptr) *text = view(value.as_string());
  } else {
    const size_t count_max = size_t{served.context_max} + 1;  // one more shows that it is too long
    if (value.is_array() && value.as_array().size() > count_max) {
      return prompt_too_long("prompt", value.as_array().size(), true, served);
    }
    if (auto failed = read_token_ids("prompt", value, served, count_max, ids)) return failed;
    if (text != nullptr) *text = served.tokenizer->decode(ids, false);
  }
  return ids.empty() ? std::optional(empty_prompt("prompt")) : std::nullopt;
}

}  // namespace

ApiError empty_prompt(std::string_view field) {
  return {.message = fmt::format("\"{}\" is empty; expected at least one token", field), .param = std::string(field)};
}

// Refuses what cannot fit before time is spent on it.
std::optional<ApiError> check_text_length(std::string_view field, size_t bytes, const ServedModel& served) {
  const size_t tokens_min = bytes / served.tokenizer->token_bytes_max();
  if (tokens_min <= served.context_max) return std::nullopt;
  return prompt_too_long(field, tokens_min, false, served);
}

ApiError prompt_too_long(std::string_view field, size_t prompt_tokens, bool exact, const ServedModel& served) {
  return {.message = fmt::format("This model's maximum context length is {} tokens, but \"{}\" has {}{} tokens, which "
                                 "leaves no room for an answer; shorten it",
                                 served.context_max, field, exact ? "" : "at least ", prompt_tokens),
          .param = std::string(field),
          .code = "context_length_exceeded"};
}

std::optional<ApiError> read_token_ids(std::string_view field, const json::value& value, const ServedModel& served,
                                       size_t count_max, std::vector<TokenId>& out) {
  if (!value.is_array()) return wrong_value(field, value, "a list of token ids");
  if (value.as_array().size() > count_max) {
    return ApiError{.message = fmt::format("\"{}\" has {} token ids; expected at most {}", field,
                                           value.as_array().size(), count_max),
                    .param = std::string(field)};
  }
  out.reserve(out.size() + value.as_array().size());
  for (const json::value& entry : value.as_array()) {
    const auto id = integer_within(entry, 0, static_cast<double>(served.vocabulary) - 1);
    if (!id) {
      return ApiError{.message = fmt::format("\"{}\" holds {}; expected token ids from 0 to {}", field, quoted(entry),
                                             served.vocabulary - 1),
                      .param = std::string(field)};
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return std::nullopt;
}

std::optional<ApiError> encode_text(std::string_view field, std::string_view text, bool special,
                                    const ServedModel& served, std::vector<TokenId>& ids) {
  auto encoded =
      special ? served.tokenizer->encode_prompt(text) : served.tokenizer->encode(text, text::SpecialTokens::kAsText);
  if (!encoded) return ApiError{.message = encoded.status().message(), .param = std::string(field)};
  ids = std::move(encoded).value();
  return std::nullopt;
}

std::optional<ApiError> read_prompts(const Body& body, const ServedModel& served,
                                     std::vector<std::vector<TokenId>>& prompts, std::vector<std::string>* texts) {
  const json::value& value = *body.find("prompt");
  if (!value.is_string() && !value.is_array()) return body.wrong("prompt");
  const bool several = value.is_array() && !value.as_array().empty() && !value.as_array().front().is_number();
  const std::span<const json::value> list =
      several ? std::span<const json::value>(value.as_array()) : std::span<const json::value>(&value, 1);
  const auto n = static_cast<size_t>(body.integer("n", 1));
  if (list.size() * n > kChoicesMax) {
    return ApiError{.message = fmt::format("\"prompt\" has {} prompts and \"n\" is {}; expected at most {} choices in "
                                           "all: send several requests",
                                           list.size(), n, kChoicesMax),
                    .param = "prompt"};
  }
  const bool special = body.boolean("add_special_tokens", true);
  for (const json::value& entry : list) {
    if (several && entry.kind() != list.front().kind()) return body.wrong("prompt");
    std::string* text = texts == nullptr ? nullptr : &texts->emplace_back();
    if (auto failed = read_prompt(entry, special, served, prompts.emplace_back(), text)) return failed;
  }
  return std::nullopt;
}

}  // namespace headwater::server::openai
