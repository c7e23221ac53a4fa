// Log probabilities of tokens in the two shapes of the API. See encode.h.
#pragma once

#include <boost/json.hpp>
#include <span>
#include <string>

#include "server/openai/choice.h"

namespace headwater::server::openai {

void encode_chat_logprobs(std::span<const TokenLogprob> tokens, const text::Tokenizer& tokenizer,
                          boost::json::object& out);
// top_logprobs: the token itself, then the most likely ones. Of tokens spelt alike the first is told.
void encode_completion_logprobs(std::span<const TokenLogprob> tokens, const text::Tokenizer& tokenizer,
                                boost::json::object& out);

std::string token_text(const text::Tokenizer& tokenizer, TokenId token);  // valid UTF-8; of control tokens the spelling

}  // namespace headwater::server::openai
