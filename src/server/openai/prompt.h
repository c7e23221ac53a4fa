// Prompts of a request as token ids.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/openai/body.h"
#include "server/openai/decode.h"

namespace headwater::server::openai {

// Every one of a list of ids must be inside the vocabulary; at most `count_max` are taken.
std::optional<ApiError> read_token_ids(std::string_view field, const boost::json::value& value,
                                       const ServedModel& served, size_t count_max, std::vector<TokenId>& out);

// Completions: one or more prompts, none without tokens. `texts`, when not null, gets each prompt as text.
std::optional<ApiError> read_prompts(const Body& body, const ServedModel& served,
                                     std::vector<std::vector<TokenId>>& prompts, std::vector<std::string>* texts);

// A text alone; may give no token. special: BOS and EOS as the model asks for.
std::optional<ApiError> encode_text(std::string_view field, std::string_view text, bool special,
                                    const ServedModel& served, std::vector<TokenId>& ids);

// context_length_exceeded. prompt_tokens: exact, or at least so many.
ApiError prompt_too_long(std::string_view field, size_t prompt_tokens, bool exact, const ServedModel& served);

// The same for a text of so many bytes that it cannot fit, before time is spent on it.
std::optional<ApiError> check_text_length(std::string_view field, size_t bytes, const ServedModel& served);
ApiError empty_prompt(std::string_view field);

}  // namespace headwater::server::openai
