#include "server/openai/encode.h"

#include <boost/json.hpp>

#include "server/openai/encode_logprobs.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;
using engine::FinishReason;

// Memory of one small answer: values are built in it and thrown away together. Larger ones continue on the heap.
class Scratch {
 public:
  json::storage_ptr memory() { return &resource_; }

 private:
  unsigned char buffer_[16384];
  json::monotonic_resource resource_{buffer_};
};

json::object& add_object(json::object& to, std::string_view key) {
  return to.emplace(key, json::object(to.storage())).first->value().get_object();
}

json::array& add_array(json::object& to, std::string_view key) {
  return to.emplace(key, json::array(to.storage())).first->value().get_array();
}

json::object& add_object(json::array& to) {
  return to.emplace_back(json::object(to.storage())).get_object();
}

std::string event_of(const json::object& chunk) {
  std::string event = "data: ";
  event += json::serialize(chunk);
  event += "\n\n";
  return event;
}

json::object head_object(const AnswerHead& head, bool is_chunk, const json::storage_ptr& memory) {
  json::object answer(8, memory);
  answer.emplace("id", head.id);
  if (head.endpoint == Endpoint::kCompletions) {
    answer.emplace("object", "text_completion");
  } else {
    answer.emplace("object", is_chunk ? "chat.completion.chunk" : "chat.completion");
  }
  answer.emplace("created", head.created);
  answer.emplace("model", head.model);
  answer.emplace("system_fingerprint", nullptr);
  return answer;
}

void add_usage(json::object& answer, const Usage& usage) {
  json::object& to = add_object(answer, "usage");
  to.emplace("prompt_tokens", usage.prompt_tokens);
  to.emplace("completion_tokens", usage.completion_tokens);
  to.emplace("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  add_object(to, "prompt_tokens_details").emplace("cached_tokens", usage.cached_tokens);
}

void add_logprobs(json::object& choice, Endpoint endpoint, const Delta& delta, const text::Tokenizer& tokenizer) {
  if (delta.logprobs.empty()) {
    choice.emplace("logprobs", nullptr);
  } else if (endpoint == Endpoint::kChat) {
    encode_chat_logprobs(delta.logprobs, tokenizer, add_object(choice, "logprobs"));
  } else {
    encode_completion_logprobs(delta.logprobs, tokenizer, add_object(choice, "logprobs"));
  }
}

void add_finish(json::object& choice, const Delta& delta) {
  const bool is_told = delta.finish == FinishReason::kStop || delta.finish == FinishReason::kLength;
  choice.emplace("finish_reason", is_told ? json::value(engine::to_string(delta.finish)) : json::value(nullptr));
}

void add_text(json::object& choice, const Delta& delta) {
  choice.emplace("text", delta.content);
}

void add_delta(json::object& choice, const Delta& delta) {
  json::object& to = add_object(choice, "delta");
  if (!delta.reasoning.empty()) to.emplace("reasoning_content", delta.reasoning);
  const bool says_nothing = delta.reasoning.empty() && !delta.finished;
  if (!delta.content.empty() || says_nothing) to.emplace("content", delta.content);
}

void add_message(json::object& choice, const Delta& delta) {
  json::object& to = add_object(choice, "message");
  to.emplace("role", "assistant");
  if (delta.reasoning.empty()) {
    to.emplace("content", delta.content);
  } else {
    to.emplace("content", delta.content.empty() ? json::value(nullptr) : json::value(delta.content));
    to.emplace("reasoning_content", delta.reasoning);
  }
  to.emplace("refusal", nullptr);
}

}  // namespace

std::string role_event(const AnswerHead& head, uint32_t choice) {
  Scratch scratch;
  json::object chunk = head_object(head, true, scratch.memory());
  json::object& to = add_object(add_array(chunk, "choices"));
  to.emplace("index", choice);
  json::object& delta = add_object(to, "delta");
  delta.emplace("role", "assistant");
  delta.emplace("content", "");
  to.emplace("logprobs", nullptr);
  to.emplace("finish_reason", nullptr);
  return event_of(chunk);
}

std::string delta_event(const AnswerHead& head, uint32_t choice, const Delta& delta, const text::Tokenizer& tokenizer,
                        const Usage* usage) {
  Scratch scratch;
  json::object chunk = head_object(head, true, scratch.memory());
  json::object& to = add_object(add_array(chunk, "choices"));
  to.emplace("index", choice);
  head.endpoint == Endpoint::kChat ? add_delta(to, delta) : add_text(to, delta);
  add_logprobs(to, head.endpoint, delta, tokenizer);
  add_finish(to, delta);
  if (usage != nullptr) add_usage(chunk, *usage);
  return event_of(chunk);
}

std::string usage_event(const AnswerHead& head, const Usage& usage) {
  Scratch scratch;
  json::object chunk = head_object(head, true, scratch.memory());
  add_array(chunk, "choices");
  add_usage(chunk, usage);
  return event_of(chunk);
}

std::string error_event(const ApiError& error) {
  return "data: " + error_json(error) + "\n\n";
}

std::string answer_json(const AnswerHead& head, std::span<const Delta> choices, const Usage& usage,
                        const text::Tokenizer& tokenizer) {
  Scratch scratch;
  json::object answer = head_object(head, false, scratch.memory());
  json::array& list = add_array(answer, "choices");
  for (size_t i = 0; i < choices.size(); ++i) {
    json::object& to = add_object(list);
    to.emplace("index", i);
    head.endpoint == Endpoint::kChat ? add_message(to, choices[i]) : add_text(to, choices[i]);
    add_logprobs(to, head.endpoint, choices[i], tokenizer);
    add_finish(to, choices[i]);
  }
  add_usage(answer, usage);
  return json::serialize(answer);
}

}  // namespace headwater::server::openai
