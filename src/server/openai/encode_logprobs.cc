#include "server/openai/encode_logprobs.h"

#include <cmath>

#include "text/utf8.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;

double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

void add_token(json::object& to, const text::Tokenizer& tokenizer, TokenId token, float logprob) {
  to.emplace("token", token_text(tokenizer, token));
  to.emplace("logprob", finite(logprob));
  json::array bytes(to.storage());
  for (const char byte : tokenizer.bytes_of(token)) bytes.emplace_back(static_cast<uint8_t>(byte));
  to.emplace("bytes", std::move(bytes));
}

}  // namespace

std::string token_text(const text::Tokenizer& tokenizer, TokenId token) {
  std::string text;
  text::append_valid_utf8(tokenizer.bytes_of(token), text);
  return text;
}

void encode_chat_logprobs(std::span<const TokenLogprob> tokens, const text::Tokenizer& tokenizer, json::object& out) {
  json::array content(out.storage());
  for (const TokenLogprob& token : tokens) {
    json::object entry(4, out.storage());
    add_token(entry, tokenizer, token.token, token.logprob);
    json::array top(out.storage());
    for (const ops::TokenLogprob& other : token.top) {
      json::object candidate(3, out.storage());
      add_token(candidate, tokenizer, other.token, other.logprob);
      top.push_back(std::move(candidate));
    }
    entry.emplace("top_logprobs", std::move(top));
    content.push_back(std::move(entry));
  }
  out.emplace("content", std::move(content));
}

void encode_completion_logprobs(std::span<const TokenLogprob> tokens, const text::Tokenizer& tokenizer,
                                json::object& out) {
  json::array texts(out.storage()), logprobs(out.storage()), tops(out.storage()), offsets(out.storage());
  for (const TokenLogprob& token : tokens) {
    const std::string text = token_text(tokenizer, token.token);
    texts.emplace_back(text);
    logprobs.emplace_back(finite(token.logprob));
    json::object top(token.top.size() + 1, out.storage());
    top.emplace(text, finite(token.logprob));
    for (const ops::TokenLogprob& other : token.top) {
      top.emplace(token_text(tokenizer, other.token), finite(other.logprob));
    }
    tops.push_back(std::move(top));
    offsets.emplace_back(token.text_offset);
  }
  out.emplace("tokens", std::move(texts));
  out.emplace("token_logprobs", std::move(logprobs));
  out.emplace("top_logprobs", std::move(tops));
  out.emplace("text_offset", std::move(offsets));
}

}  // namespace headwater::server::openai
