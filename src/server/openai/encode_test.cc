#include "server/openai/encode.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "text/test_vocabulary.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;
using engine::FinishReason;

// Of the form that a test writes it in.
json::value written(std::string_view text) {
  return json::parse(text);
}

json::value event(std::string_view event) {
  EXPECT_TRUE(event.starts_with("data: ")) << event;
  EXPECT_TRUE(event.ends_with("\n\n")) << event;
  const std::string_view text = event.substr(6, event.size() - 8);
  EXPECT_EQ(text.find('\n'), std::string_view::npos);
  return json::parse(text);
}

class EncodeTest : public ::testing::Test {
 protected:
  EncodeTest() {
    served_.names = {"tiny", "alias"};
    served_.tokenizer = &tokenizer_;
    served_.vocabulary = tokenizer_.vocabulary_size();
    served_.context_max = 512;
    served_.created = 1700000000;
  }

  text::TestVocabulary vocabulary_{"gpt-2"};
  text::Tokenizer tokenizer_ = vocabulary_.tokenizer();
  AnswerHead chat_{"chatcmpl-1", 1700000001, "tiny", Endpoint::kChat};
  AnswerHead completion_{"cmpl-1", 1700000001, "tiny", Endpoint::kCompletions};
  ServedModel served_;
};

TEST_F(EncodeTest, WritesTheChunksOfAChat) {
  EXPECT_EQ(event(role_event(chat_, 2)), written(R"({"id": "chatcmpl-1", "object": "chat.completion.chunk",
      "created": 1700000001, "model": "tiny", "system_fingerprint": null, "choices": [{"index": 2,
      "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}]})"));
  const auto choice = [&](const Delta& delta) {
    return event(delta_event(chat_, 0, delta, tokenizer_)).at("choices").at(0);
  };
  EXPECT_EQ(choice({.content = "a\"\n字"}),
            written(R"({"index": 0, "delta": {"content": "a\"\n字"}, "logprobs": null, "finish_reason": null})"));
  EXPECT_EQ(choice({.reasoning = "hm"}).at("delta"), written(R"({"reasoning_content": "hm"})"));
  EXPECT_EQ(choice({.content = "b", .reasoning = "hm"}).at("delta"),
            written(R"({"reasoning_content": "hm", "content": "b"})"));
  EXPECT_EQ(choice({.finished = true, .finish = FinishReason::kStop}),
            written(R"({"index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop"})"));
  EXPECT_EQ(choice({.content = "z", .finished = true, .finish = FinishReason::kLength}),
            written(R"({"index": 0, "delta": {"content": "z"}, "logprobs": null, "finish_reason": "length"})"));
}

TEST_F(EncodeTest, NeverNamesACancelledOrFailedChoiceAsFinished) {
  for (const FinishReason reason : {FinishReason::kNone, FinishReason::kCancelled, FinishReason::kFailed}) {
    const auto chunk = event(delta_event(chat_, 0, {.finished = true, .finish = reason}, tokenizer_));
    EXPECT_TRUE(chunk.at("choices").at(0).at("finish_reason").is_null());
  }
}

TEST_F(EncodeTest, WritesTheChunksOfACompletion) {
  EXPECT_EQ(event(delta_event(completion_, 1, {.content = "ab"}, tokenizer_)),
            written(R"({"id": "cmpl-1", "object": "text_completion", "created": 1700000001, "model": "tiny",
      "system_fingerprint": null, "choices": [{"index": 1, "text": "ab", "logprobs": null, "finish_reason": null}]})"));
}

TEST_F(EncodeTest, WritesUsageWithoutChoicesAndZeroCachedTokens) {
  EXPECT_EQ(event(usage_event(chat_, {.prompt_tokens = 3, .completion_tokens = 4})),
            written(R"({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000001, "model": "tiny",
      "system_fingerprint": null, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4,
      "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}})"));
  EXPECT_EQ(event(usage_event(completion_, {})).at("object").as_string(), "text_completion");
}

TEST_F(EncodeTest, WritesAWholeChat) {
  const std::vector<Delta> choices = {
      {.content = "yes", .finished = true, .finish = FinishReason::kStop},
      {.content = "b", .reasoning = "a", .finished = true, .finish = FinishReason::kLength},
      {.reasoning = "a", .finished = true, .finish = FinishReason::kLength}};
  EXPECT_EQ(json::parse(answer_json(chat_, choices, {5, 6, 4}, tokenizer_)), written(R"({"id": "chatcmpl-1",
      "object": "chat.completion", "created": 1700000001, "model": "tiny", "system_fingerprint": null, "choices": [
      {"index": 0, "message": {"role": "assistant", "content": "yes", "refusal": null}, "logprobs": null,
       "finish_reason": "stop"},
      {"index": 1, "message": {"role": "assistant", "content": "b", "reasoning_content": "a", "refusal": null},
       "logprobs": null, "finish_reason": "length"},
      {"index": 2, "message": {"role": "assistant", "content": null, "reasoning_content": "a", "refusal": null},
       "logprobs": null, "finish_reason": "length"}],
      "usage": {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11,
      "prompt_tokens_details": {"cached_tokens": 4}}})"));
}

TEST_F(EncodeTest, WritesAWholeCompletion) {
  const std::vector<Delta> choices = {{.content = "yes", .finished = true, .finish = FinishReason::kStop}};
  EXPECT_EQ(json::parse(answer_json(completion_, choices, {}, tokenizer_)), written(R"({"id": "cmpl-1",
      "object": "text_completion", "created": 1700000001, "model": "tiny", "system_fingerprint": null, "choices": [
      {"index": 0, "text": "yes", "logprobs": null, "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0,
      "prompt_tokens_details": {"cached_tokens": 0}}})"));
}

// A byte that is no text by itself, a control token, and log probabilities that JSON cannot hold.
std::vector<TokenLogprob> hostile_logprobs(TokenId control) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return {{'a', 0, -0.5f, {{'a', -0.5f}, {0xC4, -kInfinity}}}, {0xC4, 1, -kInfinity, {}}, {control, 2, NAN, {}}};
}

TEST_F(EncodeTest, WritesLogprobsOfAChatWithExactBytes) {
  const Delta delta{.content = "a", .logprobs = hostile_logprobs(tokenizer_.eos())};
  const json::value logprobs = event(delta_event(chat_, 0, delta, tokenizer_)).at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs, written(R"({"content": [
      {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
        {"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "\uFFFD", "logprob": -9999.0, "bytes": [196]}]},
      {"token": "\uFFFD", "logprob": -9999.0, "bytes": [196], "top_logprobs": []},
      {"token": "<|im_end|>", "logprob": -9999.0, "bytes": [60, 124, 105, 109, 95, 101, 110, 100, 124, 62],
       "top_logprobs": []}]})"));
}

TEST_F(EncodeTest, WritesLogprobsOfACompletionAsParallelLists) {
  const Delta delta{.content = "a", .logprobs = hostile_logprobs(tokenizer_.eos())};
  const std::vector<Delta> choices = {delta};
  const json::value logprobs =
      json::parse(answer_json(completion_, choices, {}, tokenizer_)).at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs, written(R"({"tokens": ["a", "\uFFFD", "<|im_end|>"], "token_logprobs": [-0.5, -9999.0, -9999.0],
      "top_logprobs": [{"a": -0.5, "\uFFFD": -9999.0}, {"\uFFFD": -9999.0}, {"<|im_end|>": -9999.0}],
      "text_offset": [0, 1, 2]})"));
}

TEST_F(EncodeTest, WritesAnErrorAsAnEvent) {
  EXPECT_EQ(event(error_event({.status = 500, .message = "no \xFF", .type = "server_error"})),
            written(R"({"error": {"message": "no \uFFFD", "type": "server_error", "param": null, "code": null}})"));
}

TEST_F(EncodeTest, ListsEveryServedNameAsAModel) {
  const json::value models = json::parse(models_json(served_));
  EXPECT_EQ(models.at("object").as_string(), "list");
  ASSERT_EQ(models.at("data").as_array().size(), 2u);
  EXPECT_EQ(models.at("data").at(1), json::parse(model_json(served_, "alias")));
  EXPECT_EQ(models.at("data").at(0), written(R"({"id": "tiny", "object": "model", "created": 1700000000,
      "owned_by": "headwater", "root": "tiny", "parent": null, "max_model_len": 512})"));
}

TEST_F(EncodeTest, AnswersTokenizeAndDetokenizeForBothKindsOfClients) {
  EXPECT_EQ(json::parse(tokenize_json({.ids = {'a', 0xC4}}, served_)),
            written(R"({"tokens": [97, 196], "count": 2, "max_model_len": 512, "token_strs": null})"));
  EXPECT_EQ(json::parse(tokenize_json({.ids = {'a', 0xC4}, .want_strings = true}, served_)).at("token_strs"),
            written(R"(["a", "\uFFFD"])"));
  const std::vector<TokenId> ids = {'a', tokenizer_.eos(), 0xC4};
  EXPECT_EQ(json::parse(detokenize_json(ids, served_)),
            written(R"({"content": "a<|im_end|>\uFFFD", "prompt": "a<|im_end|>\uFFFD"})"));
}

TEST_F(EncodeTest, RendersTheNamesThatARouterReads) {
  Generation generation;
  generation.endpoint = Endpoint::kChat;
  generation.model = "tiny";
  generation.prompts = {{1, 2}};
  generation.stops = {"END"};
  generation.sampling.temperature = 0.5f;
  generation.sampling.stop_ids = {7};
  const json::value chat = json::parse(render_json(generation, "r"));
  EXPECT_EQ(chat, written(R"({"request_id": "r", "token_ids": [1, 2], "model": "tiny", "sampling_params": {"n": 1,
      "max_tokens": 16, "min_tokens": 0, "temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
      "repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "seed": null, "stop": ["END"],
      "stop_token_ids": [7], "logprobs": null}, "stream": false, "cache_salt": null, "priority": 0})"));
  generation.endpoint = Endpoint::kCompletions;
  generation.prompts.push_back({3});
  generation.seeded = true;
  generation.sampling.seed = 9;
  generation.cache_salt = "s";
  const json::value list = json::parse(render_json(generation, "r"));
  ASSERT_EQ(list.as_array().size(), 2u);
  EXPECT_EQ(list.at(1).at("request_id").as_string(), "r-1");
  EXPECT_EQ(list.at(1).at("token_ids"), written("[3]"));
  EXPECT_EQ(list.at(1).at("cache_salt").as_string(), "s");
  EXPECT_EQ(list.at(1).at("sampling_params").at("seed").to_number<uint64_t>(), 9u);
}

}  // namespace
}  // namespace headwater::server::openai
