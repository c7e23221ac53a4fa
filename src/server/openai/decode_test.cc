#include "server/openai/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>

#include "server/openai/fields.h"
#include "server/openai/served_test_kit.h"

namespace headwater::server::openai {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Ids = std::vector<TokenId>;

const TestModel kModel;

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string completion(std::string_view fields) {
  return fmt::format(R"({{"prompt": "hello"{}{}}})", fields.empty() ? "" : ", ", fields);
}

std::string chat(std::string_view fields) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "hello"}}]{}{}}})", fields.empty() ? "" : ", ",
                     fields);
}

std::string message(std::string_view message) {
  return fmt::format(R"({{"messages": [{}]}})", message);
}

// The error of a body; a status of 200 when there is none.
ApiError error_of(Endpoint endpoint, std::string_view body, const ServedModel& served = kModel.served()) {
  Generation out;
  auto failed = decode_generation(endpoint, body, served, out);
  return failed ? *failed : ApiError{.status = 200};
}

Generation decoded(Endpoint endpoint, std::string_view body, const ServedModel& served = kModel.served()) {
  Generation out;
  const auto failed = decode_generation(endpoint, body, served, out);
  EXPECT_FALSE(failed) << body << ": " << failed->message;
  if (failed) out.prompts.resize(1);
  return out;
}

std::string rendered(std::string_view body, const TestModel& model = kModel) {
  const Generation out = decoded(Endpoint::kChat, body, model.served());
  return model.tokenizer().decode(out.prompts[0], false);
}

struct Wrong {
  std::string fields;
  std::string param;
  std::string expected;  // part of the message
};

void expect_wrong(Endpoint endpoint, const std::string& body, const Wrong& wrong) {
  const ApiError error = error_of(endpoint, body);
  EXPECT_EQ(error.status, 400u) << body;
  EXPECT_EQ(error.param, wrong.param) << body;
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_THAT(error.message, HasSubstr(wrong.expected)) << body;
  EXPECT_LT(error.message.size(), 600u) << body;
}

TEST(DecodeFields, AWrongTypeOrValueIsAnErrorNamingFieldValueAndLimit) {
  const std::string many_stops = R"("stop": [)" + repeat(R"("x", )", 999) + R"("x"])";
  const std::string long_stop = R"("stop": ")" + std::string(kStopBytesMax + 1, 'x') + R"(")";
  const std::vector<Wrong> cases = {
      {R"("stream": "true")", "stream", R"("stream" is "true"; expected true or false)"},
      {R"("stream": 1)", "stream", "true or false"},
      {R"("max_tokens": "5")", "max_tokens", R"(is "5"; expected an integer from 0)"},
      {R"("max_tokens": -1)", "max_tokens", "-1"},
      {R"("max_tokens": 1.5)", "max_tokens", "1.5E0"},
      {R"("max_tokens": 1e400)", "max_tokens", "an integer"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens", "18446744073709551615"},
      {R"("max_tokens": true)", "max_tokens", "true"},
      {R"("max_completion_tokens": [])", "max_completion_tokens", "[]"},
      {R"("min_tokens": -5)", "min_tokens", "-5"},
      {R"("min_tokens": 6, "max_tokens": 5)", "min_tokens", "at most 5"},
      {R"("temperature": 1e9)", "temperature", "a number from 0 to 2"},
      {R"("temperature": -1)", "temperature", "-1"},
      {R"("temperature": 2.01)", "temperature", "2.01"},
      {R"("temperature": 1e400)", "temperature", "from 0 to 2"},
      {R"("temperature": -1e400)", "temperature", "from 0 to 2"},
      {R"("temperature": "hot")", "temperature", "hot"},
      {R"("top_p": 0)", "top_p", "above 0, at most 1"},
      {R"("top_p": 1e-60)", "top_p", "above 0"},
      {R"("top_p": 1.5)", "top_p", "1.5"},
      {R"("top_k": -2)", "top_k", "-2"},
      {R"("top_k": 3000000000)", "top_k", "3000000000"},
      {R"("min_p": 1.1)", "min_p", "from 0 to 1"},
      {R"("n": 0)", "n", "from 1 to 128"},
      {R"("n": 100000)", "n", "100000"},
      {R"("n": 2, "best_of": 3)", "best_of", "3"},
      {R"("best_of": 2)", "best_of", "2"},
      {R"("seed": 1.5)", "seed", "64 bits"},
      {R"("seed": 9223372036854775808)", "seed", "9223372036854775808"},
      {many_stops, "stop", "at most 16 strings"},
      {long_stop, "stop", "1 to 4096 bytes"},
      {R"("stop": [""])", "stop", R"([""])"},
      {R"("stop": "")", "stop", "1 to 4096 bytes"},
      {R"("stop": [1])", "stop", "[1]"},
      {R"("stop": {})", "stop", "{}"},
      {R"("stop_token_ids": [274])", "stop_token_ids", "0 to 273"},
      {R"("stop_token_ids": "x")", "stop_token_ids", "token ids"},
      {R"("stop_token_ids": [)" + repeat("1, ", 256) + "1]", "stop_token_ids", "257"},
      {R"("logit_bias": {"999999": 5})", "logit_bias", R"("999999": 5; expected token ids from 0 to 273)"},
      {R"("logit_bias": {"-1": 1})", "logit_bias", "-1"},
      {R"("logit_bias": {"abc": 1})", "logit_bias", "abc"},
      {R"("logit_bias": {"01": 1})", "logit_bias", "01"},
      {R"("logit_bias": {"1": 1e400})", "logit_bias", "-100 to 100"},
      {R"("logit_bias": {"1": -1e400})", "logit_bias", "-100 to 100"},
      {R"("logit_bias": {"1": 100.5})", "logit_bias", "-100 to 100"},
      {R"("logit_bias": {"1": null})", "logit_bias", "null"},
      {R"("logit_bias": [1])", "logit_bias", "[1]"},
      {R"("presence_penalty": 2.5)", "presence_penalty", "-2 to 2"},
      {R"("frequency_penalty": -2.5)", "frequency_penalty", "-2 to 2"},
      {R"("repetition_penalty": 0)", "repetition_penalty", "0.01 to 10"},
      {R"("ignore_eos": "no")", "ignore_eos", "no"},
      {R"("cache_salt": "")", "cache_salt", "1 to 1024 bytes"},
      {R"("priority": 2147483648)", "priority", "2147483648"},
      {R"("user": 5)", "user", "5"},
      {R"("metadata": "x")", "metadata", "an object"},
      {R"("model": 5)", "model", "5"},
      {R"("stream_options": {"include_usage": true})", "stream_options", R"("stream" is not true)"},
      {R"("stream_options": {"include_usage": 1}, "stream": true)", "stream_options.include_usage", "1"},
      {R"("stream_options": {"continuous_usage_stats": true}, "stream": true)",
       "stream_options.continuous_usage_stats", "true"},
      {R"("stream_options": true, "stream": true)", "stream_options", "an object"},
      {R"("top_logprobs": 21, "logprobs": true)", "top_logprobs", "0 to 20"},
      {R"("top_logprobs": 2)", "top_logprobs", R"("logprobs" is not true)"},
      {R"("top_logprobs": 2, "logprobs": false)", "top_logprobs", R"("logprobs" is not true)"},
  };
  for (const Wrong& wrong : cases) {
    expect_wrong(Endpoint::kCompletions, completion(wrong.fields), wrong);
    expect_wrong(Endpoint::kChat, chat(wrong.fields), wrong);
  }
}

TEST(DecodeFields, FieldsThatTheEndpointsReadDifferently) {
  expect_wrong(Endpoint::kCompletions, completion(R"("logprobs": 21)"), {"", "logprobs", "0 to 20"});
  expect_wrong(Endpoint::kCompletions, completion(R"("logprobs": "yes")"), {"", "logprobs", "yes"});
  expect_wrong(Endpoint::kCompletions, completion(R"("logprobs": 2, "top_logprobs": 3)"), {"", "top_logprobs", "true"});
  expect_wrong(Endpoint::kChat, chat(R"("logprobs": 2)"), {"", "logprobs", "true or false"});
  expect_wrong(Endpoint::kCompletions, completion(R"("echo": true, "logprobs": 0)"), {"", "echo", "not supported"});
  expect_wrong(Endpoint::kChat, chat(R"("echo": true)"), {"", "echo", "Only completions"});
  const Generation counted = decoded(Endpoint::kCompletions, completion(R"("logprobs": 0)"));
  EXPECT_TRUE(counted.sampling.want_logprobs);
  EXPECT_EQ(counted.sampling.top_logprobs, 0u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, completion(R"("logprobs": 20)")).sampling.top_logprobs, 20u);
  const Generation chosen = decoded(Endpoint::kChat, chat(R"("logprobs": true, "top_logprobs": 5, "top_k": 1)"));
  EXPECT_TRUE(chosen.sampling.want_logprobs);
  EXPECT_EQ(chosen.sampling.top_logprobs, 5u);
  EXPECT_EQ(chosen.sampling.top_k, 1u);
}

TEST(DecodeFields, EveryValueArrives) {
  const Generation out = decoded(Endpoint::kCompletions, completion(R"(
      "model": "alias", "max_tokens": 7.0, "min_tokens": 2, "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125,
      "n": 3, "best_of": 3, "seed": -7, "stop": ["a", "b"], "stop_token_ids": [5], "logit_bias": {"7": -100, "0": 1.5},
      "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5, "cache_salt": "tenant", "priority": -3,
      "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false}, "user": "ada",
      "metadata": {"a": "b"}, "echo": true)"));
  EXPECT_EQ(out.model, "alias");
  EXPECT_EQ(out.sampling.tokens_max, 7u);
  EXPECT_EQ(out.sampling.tokens_min, 2u);
  EXPECT_EQ(out.sampling.temperature, 0.5f);
  EXPECT_EQ(out.sampling.top_p, 0.25f);
  EXPECT_EQ(out.sampling.top_k, 40u);
  EXPECT_EQ(out.sampling.min_p, 0.125f);
  EXPECT_EQ(out.sampling.presence_penalty, 1);
  EXPECT_EQ(out.sampling.frequency_penalty, -1);
  EXPECT_EQ(out.sampling.repetition_penalty, 1.5f);
  EXPECT_TRUE(out.seeded);
  EXPECT_EQ(out.sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(out.n, 3u);
  EXPECT_THAT(out.stops, ElementsAre("a", "b"));
  EXPECT_THAT(out.sampling.stop_ids, Contains(5));
  EXPECT_THAT(out.sampling.stop_ids, Contains(kModel.tokenizer().eos()));
  ASSERT_THAT(out.sampling.logit_bias, SizeIs(2));
  EXPECT_EQ(out.sampling.logit_bias[0].token, 7);
  EXPECT_EQ(out.sampling.logit_bias[0].bias, -100);
  EXPECT_EQ(out.cache_salt, "tenant");
  EXPECT_EQ(out.priority, -3);
  EXPECT_TRUE(out.stream && out.include_usage && out.echo);
  EXPECT_THAT(out.prompt_texts, ElementsAre("hello"));
  EXPECT_THAT(out.unknown_fields, IsEmpty());
}

TEST(DecodeFields, AbsentAndNullAreTheSame) {
  std::string nulls;
  for (const Field& field : fields()) {
    if (!field.required && (field.endpoints & kInChat) != 0)
      nulls += fmt::format(R"({}"{}": null)", nulls.empty() ? "" : ", ", field.name);
  }
  for (const std::string& body : {chat(""), chat(nulls)}) {
    const Generation out = decoded(Endpoint::kChat, body);
    EXPECT_EQ(out.model, "small");
    EXPECT_EQ(out.sampling.temperature, 1);
    EXPECT_EQ(out.sampling.top_p, 1);
    EXPECT_EQ(out.sampling.tokens_max + out.prompts[0].size(), 256u);
    EXPECT_EQ(out.n, 1u);
    EXPECT_FALSE(out.seeded || out.stream || out.sampling.want_logprobs);
    EXPECT_THAT(out.sampling.stop_ids, ElementsAre(kModel.tokenizer().eos()));
    EXPECT_THAT(out.unknown_fields, IsEmpty());
  }
  EXPECT_FALSE(decoded(Endpoint::kChat, chat(R"("seed": -1)")).seeded);
  EXPECT_THAT(decoded(Endpoint::kChat, chat(R"("ignore_eos": true)")).sampling.stop_ids, IsEmpty());
  EXPECT_EQ(decoded(Endpoint::kChat, chat(R"("top_k": -1)")).sampling.top_k, 0u);
}

TEST(DecodeFields, DefaultsStandForAbsentFields) {
  engine::SamplingParams defaults;
  defaults.tokens_max = 9;
  defaults.temperature = 0;
  defaults.seed = 5;
  Generation out;
  ASSERT_FALSE(decode_generation(Endpoint::kCompletions, completion(""), kModel.served(), out, defaults));
  EXPECT_EQ(out.sampling.tokens_max, 9u);
  EXPECT_EQ(out.sampling.temperature, 0);
  EXPECT_EQ(out.sampling.seed, 5u);
  ASSERT_FALSE(decode_generation(Endpoint::kCompletions, completion(R"("max_tokens": 3)"), kModel.served(), out, defaults));
  EXPECT_EQ(out.sampling.tokens_max, 3u);
}

TEST(DecodeFields, UnknownOnesAreIgnoredAndReported) {
  const std::string long_name(200, 'x');
  const Generation out = decoded(
      Endpoint::kCompletions, completion(R"("n_predict": 5, "cache_prompt": true, "repeat_penalty": 1.1, ")" + long_name + R"(": 1)"));
  EXPECT_THAT(out.unknown_fields, ElementsAre("n_predict", "cache_prompt", "repeat_penalty", std::string(80, 'x') + "..."));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += fmt::format(R"({}"f{}": 1)", i == 0 ? "" : ", ", i);
  EXPECT_LE(decoded(Endpoint::kCompletions, completion(many)).unknown_fields.size(), 32u);
}

TEST(DecodeFields, KnownButUnsupportedOnesMayAskForNothing) {
  for (const char* fields :
       {R"("tools": [])", R"("tool_choice": "none")", R"("tool_choice": "auto")", R"("parallel_tool_calls": true)",
        R"("functions": [])", R"("response_format": {"type": "text"})", R"("logit_bias": {})", R"("n": 1, "best_of": 1)",
        R"("modalities": ["text"])", R"("store": false)", R"("service_tier": "auto")", R"("use_beam_search": false)",
        R"("skip_special_tokens": true)", R"("length_penalty": 1.0)", R"("length_penalty": 1)", R"("echo": false)",
        R"("return_token_ids": false)", R"("stop": [])", R"("structured_outputs": {})"}) {
    EXPECT_EQ(error_of(Endpoint::kChat, chat(fields)).status, 200u) << fields;
  }
  EXPECT_EQ(error_of(Endpoint::kCompletions, completion(R"("suffix": "")")).status, 200u);
  const std::vector<Wrong> cases = {
      {R"("tools": [{"type": "function"}])", "tools", "not supported yet"},
      {R"("tools": {})", "tools", "{}"},
      {R"("tool_choice": "required")", "tool_choice", "required"},
      {R"("function_call": {"name": "f"})", "function_call", "not supported"},
      {R"("response_format": {"type": "json_object"})", "response_format", "json_object"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format", "not supported"},
      {R"("guided_json": {})", "guided_json", "not supported"},
      {R"("structured_outputs": {"regex": "a"})", "structured_outputs", "not supported"},
      {R"("modalities": ["text", "audio"])", "modalities", "audio"},
      {R"("audio": {"voice": "x"})", "audio", "text only"},
      {R"("web_search_options": {})", "web_search_options", "nothing"},
      {R"("store": true)", "store", "Nothing is stored"},
      {R"("service_tier": "flex")", "service_tier", "flex"},
      {R"("reasoning_effort": "low")", "reasoning_effort", "chat_template_kwargs"},
      {R"("chat_template": "x")", "chat_template", "never from a client"},
      {R"("skip_special_tokens": false)", "skip_special_tokens", "false"},
      {R"("use_beam_search": true)", "use_beam_search", "not supported"},
      {R"("prompt_logprobs": 0)", "prompt_logprobs", "not supported"},
      {R"("logits_processors": ["os.system"])", "logits_processors", "never run"},
  };
  for (const Wrong& wrong : cases) {
    expect_wrong(Endpoint::kChat, chat(wrong.fields), wrong);
    EXPECT_EQ(error_of(Endpoint::kChat, chat(wrong.fields)).code, "unsupported_parameter");
  }
  expect_wrong(Endpoint::kCompletions, completion(R"("suffix": "end")"), {"", "suffix", "not supported"});
}

TEST(DecodeModel, OneThatIsNotServedIsNotFound) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    const std::string field = R"("model": "gpt-4")";
    const ApiError error = error_of(endpoint, endpoint == Endpoint::kChat ? chat(field) : completion(field));
    EXPECT_EQ(error.status, 404u);
    EXPECT_EQ(error.code, "model_not_found");
    EXPECT_EQ(error.param, "model");
    EXPECT_THAT(error.message, HasSubstr("gpt-4"));
    EXPECT_THAT(error.message, HasSubstr("small"));
  }
}

TEST(DecodePrompt, ReadsTextsAndIds) {
  const auto ids = [](std::string_view text) { return kModel.tokenizer().encode(text, text::SpecialTokens::kAsText); };
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": "hello"})").prompts, ElementsAre(ids("hello")));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": ["a", "hello"]})").prompts,
              ElementsAre(ids("a"), ids("hello")));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": [0, 273]})").prompts, ElementsAre(Ids{0, 273}));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": [[1], [2, 3]]})").prompts,
              ElementsAre(Ids{1}, Ids{2, 3}));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": [[104], [105]], "echo": true})").prompt_texts,
              ElementsAre(kModel.tokenizer().decode(Ids{104}, false), kModel.tokenizer().decode(Ids{105}, false)));
}

TEST(DecodePrompt, AWrongOneIsRefused) {
  for (const auto& [prompt, expected] : std::vector<std::pair<std::string, std::string>>{
           {"[-1]", "holds -1; expected token ids from 0 to 273"},
           {"[2147483648]", "2147483648"},
           {"[4294967296]", "4294967296"},
           {"[4294967297]", "4294967297"},
           {"[18446744073709551615]", "18446744073709551615"},
           {"[274]", "274"},
           {"[1.5]", "1.5"},
           {"[1e400]", "0 to 273"},
           {"[1, \"a\"]", "\"a\""},
           {"[[274]]", "274"},
           {"[[[1]]]", "[1]"},
           {"[\"a\", 1]", "lists of token ids"},
           {"[\"a\", [1]]", "lists of token ids"},
           {"[null]", "null"},
           {"[true]", "true"},
           {"5", "5"},
           {"{}", "{}"},
           {"null", "missing"},
           {"\"\"", "empty"},
           {"[]", "empty"},
           {"[[]]", "empty"},
           {"[\"\"]", "empty"},
           {"[\"a\", \"\"]", "empty"},
           {"[[1], []]", "empty"}}) {
    expect_wrong(Endpoint::kCompletions, R"({"prompt": )" + prompt + "}", {"", "prompt", expected});
  }
  expect_wrong(Endpoint::kCompletions, "{}", {"", "prompt", "missing"});
}

TEST(DecodePrompt, AnEmptyTextIsTheBeginningTokenWhereTheModelAddsOne) {
  const TestModel model(true);
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": ""})", model.served()).prompts,
              ElementsAre(Ids{model.tokenizer().bos()}));
  EXPECT_EQ(error_of(Endpoint::kCompletions, R"({"prompt": "", "add_special_tokens": false})", model.served()).status, 400u);
  EXPECT_EQ(error_of(Endpoint::kCompletions, R"({"prompt": [[]]})", model.served()).status, 400u);
}

TEST(DecodePrompt, PromptsTimesChoicesAreBounded) {
  const std::string prompts = R"({"prompt": [)" + repeat("\"a\", ", 31) + "\"a\"], \"n\": ";
  EXPECT_THAT(decoded(Endpoint::kCompletions, prompts + "4}").prompts, SizeIs(32));
  expect_wrong(Endpoint::kCompletions, prompts + "5}", {"", "prompt", "32 prompts and \"n\" is 5; expected at most 128"});
}

TEST(DecodeContext, PromptAndAnswerMayFillItAndNotExceedIt) {
  const ServedModel served = kModel.served(10);
  const auto body = [](size_t tokens, std::string_view rest) {
    return R"({"prompt": [)" + repeat("1, ", tokens - 1) + "1]" + std::string(rest) + "}";
  };
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(9, ""), served).sampling.tokens_max, 1u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(6, R"(, "max_tokens": 4)"), served).sampling.tokens_max, 4u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(10, R"(, "max_tokens": 0)"), served).sampling.tokens_max, 0u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(10, R"(, "max_tokens": 0, "echo": true)"), served).prompt_texts.size(), 1u);
  for (const auto& [tokens, rest, param, numbers] : std::vector<std::tuple<size_t, std::string, std::string, std::string>>{
           {10, "", "prompt", "10 tokens, but \"prompt\" has 10"},
           {11, "", "prompt", "10 tokens, but \"prompt\" has 11"},
           {500, "", "prompt", "has 500"},
           {11, R"(, "max_tokens": 0)", "prompt", "has 11"},
           {6, R"(, "max_tokens": 5)", "max_tokens", "\"prompt\" has 6 tokens and \"max_tokens\" is 5, 11 in all"},
           {6, R"(, "max_completion_tokens": 5, "max_tokens": 1)", "max_completion_tokens", "\"max_completion_tokens\" is 5"},
           {1, R"(, "max_tokens": 2147483647)", "max_tokens", "2147483648 in all"}}) {
    const ApiError error = error_of(Endpoint::kCompletions, body(tokens, rest), served);
    EXPECT_EQ(error.status, 400u);
    EXPECT_EQ(error.code, "context_length_exceeded") << error.message;
    EXPECT_EQ(error.param, param);
    EXPECT_THAT(error.message, HasSubstr(numbers));
    EXPECT_THAT(error.message, HasSubstr("maximum context length is 10 tokens"));
  }
  const Generation several = decoded(Endpoint::kCompletions, R"({"prompt": [[1], [1, 2, 3, 4]]})", served);
  EXPECT_EQ(several.sampling.tokens_max, 6u) << "the longest prompt decides";
  EXPECT_EQ(error_of(Endpoint::kChat, chat(""), served).code, "context_length_exceeded");
}

TEST(DecodeContext, ATextThatCannotFitIsRefusedBeforeItIsTokenised) {
  const std::string text(7'000'000, 'a');
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& [endpoint, body] :
       {std::pair{Endpoint::kCompletions, R"({"prompt": ")" + text + R"("})"},
        {Endpoint::kChat, message(R"({"role": "user", "content": ")" + text + R"("})")}}) {
    const ApiError error = error_of(endpoint, body);
    EXPECT_EQ(error.code, "context_length_exceeded");
    EXPECT_THAT(error.message, HasSubstr("at least 4"));
  }
  Tokenize tokens;
  EXPECT_TRUE(decode_tokenize(R"({"content": ")" + text + R"("})", kModel.served(), tokens));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(DecodeMessages, ContentIsATextNothingOrParts) {
  EXPECT_EQ(rendered(chat("")), "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(rendered(message(R"({"role": "assistant", "content": null})")), HasSubstr("assistant\n<|im_end|>"));
  EXPECT_THAT(rendered(message(R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})")),
              HasSubstr("user\na\nb<|im_end|>"));
  EXPECT_THAT(rendered(message(R"({"role": "user", "content": []})")), HasSubstr("user\n<|im_end|>"));
  EXPECT_THAT(rendered(message(R"({"role": "assistant", "content": "x", "name": "n", "tool_calls": [], "refusal": null})")),
              HasSubstr("assistant\nx<|im_end|>"));
}

TEST(DecodeMessages, WhatOrderAndRolesMeanIsTheTemplatesBusiness) {
  EXPECT_THAT(rendered(message(R"({"role": "user", "content": "a"}, {"role": "user", "content": "b"})")),
              HasSubstr("user\na<|im_end|>\n<|im_start|>user\nb<|im_end|>"));
  EXPECT_THAT(rendered(message(R"({"role": "tool", "content": "42"})")), HasSubstr("tool\n42"));
  EXPECT_THAT(rendered(message(R"({"role": "wizard", "content": "a"})")), HasSubstr("wizard\na"));
  expect_wrong(Endpoint::kChat, message(R"({"role": "robot", "content": "a"})"), {"", "messages", "no role robot here"});
  expect_wrong(Endpoint::kChat, message(R"({"role": "user", "content": "a"}, {"role": "system", "content": "b"})"),
               {"", "messages", "system goes first"});
}

TEST(DecodeMessages, WrongOnesAreRefused) {
  const std::vector<Wrong> cases = {
      {"", "messages", "at least one"},
      {"5", "messages", "role and content"},
      {"null", "messages", "role and content"},
      {R"({"role": "user"})", "messages", "role and content"},
      {R"({"content": "a"})", "messages", "role and content"},
      {R"({"role": 5, "content": "a"})", "messages.role", "5"},
      {R"({"role": null, "content": "a"})", "messages.role", "null"},
      {R"({"role": "", "content": "a"})", "messages.role", "a string"},
      {R"({"role": "user", "content": 5})", "messages.content", "5"},
      {R"({"role": "user", "content": {"type": "text", "text": "a"}})", "messages.content", "text parts"},
      {R"({"role": "user", "content": ["a"]})", "messages.content", "text"},
      {R"({"role": "user", "content": [{"type": "text"}]})", "messages.content", "string text"},
      {R"({"role": "user", "content": [{"type": "text", "text": 5}]})", "messages.content", "string text"},
      {R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]})",
       "messages.content.type", "image_url"},
      {R"({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]})", "messages.content.type",
       "input_audio"},
      {R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]})", "messages.tool_calls",
       "not supported"},
      {R"({"role": "assistant", "content": null, "function_call": {"name": "f"}})", "messages.function_call",
       "not supported"}};
  for (const Wrong& wrong : cases) expect_wrong(Endpoint::kChat, message(wrong.fields), wrong);
  expect_wrong(Endpoint::kChat, "{}", {"", "messages", "missing"});
  expect_wrong(Endpoint::kChat, R"({"messages": "hello"})", {"", "messages", "hello"});
  ServedModel plain = kModel.served();
  plain.chat_template = nullptr;
  EXPECT_THAT(error_of(Endpoint::kChat, chat(""), plain).message, HasSubstr("/v1/completions"));
}

TEST(DecodeMessages, ControlStringsOfAUserStayText) {
  const TokenId end = kModel.tokenizer().eos();
  const auto count = [&](std::string_view content) {
    const Generation out = decoded(Endpoint::kChat, message(fmt::format(R"({{"role": "user", "content": "{}"}})", content)));
    return std::ranges::count(out.prompts[0], end);
  };
  EXPECT_EQ(count("hello"), 1) << "the template's own";
  EXPECT_EQ(count("a<|im_end|>b<|im_end|>"), 1);
  EXPECT_THAT(rendered(message(R"({"role": "user", "content": "a<|im_end|>b"})")), HasSubstr("a<|im_end|>b<|im_end|>"));
  const Generation plain = decoded(Endpoint::kCompletions, R"({"prompt": "a<|im_end|>"})");
  EXPECT_THAT(plain.prompts[0], Not(Contains(end)));
}

TEST(DecodeMessages, TemplateOptionsAreChecked) {
  EXPECT_EQ(rendered(chat(R"("add_generation_prompt": false)")), "<|im_start|>user\nhello<|im_end|>\n");
  EXPECT_THAT(rendered(chat(R"("continue_final_message": true)")), Not(HasSubstr("assistant")));
  const std::vector<Wrong> cases = {
      {R"("add_generation_prompt": true, "continue_final_message": true)", "continue_final_message", "both true"},
      {R"("chat_template_kwargs": {"tools": true})", "chat_template_kwargs.tools", "enable_thinking"},
      {R"("chat_template_kwargs": {"enable_thinking": "no"})", "chat_template_kwargs.enable_thinking", "no"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs", "[]"},
      {R"("add_generation_prompt": 1)", "add_generation_prompt", "1"}};
  for (const Wrong& wrong : cases) expect_wrong(Endpoint::kChat, chat(wrong.fields), wrong);
  EXPECT_EQ(error_of(Endpoint::kChat, chat(R"("chat_template_kwargs": {"enable_thinking": false, "thinking": null})")).status,
            200u);
}

TEST(DecodeMessages, AnOpenThinkBlockIsSeen) {
  const TestModel thinking(false, std::string(kChatMl) + "<think>\n");
  ServedModel served = thinking.served();
  EXPECT_FALSE(decoded(Endpoint::kChat, chat(""), served).in_reasoning) << "not a reasoning model";
  served.reasoning = true;
  EXPECT_TRUE(decoded(Endpoint::kChat, chat(""), served).in_reasoning);
  ServedModel closed = kModel.served();
  closed.reasoning = true;
  EXPECT_FALSE(decoded(Endpoint::kChat, chat(""), closed).in_reasoning);
}

TEST(DecodeTokenize, TakesOneOfThreeSources) {
  const TestModel model(true);
  const ServedModel served = model.served();
  const Ids hello = model.tokenizer().encode("hello", text::SpecialTokens::kAsText);
  Ids begun{model.tokenizer().bos()};
  begun.insert(begun.end(), hello.begin(), hello.end());
  for (const auto& [body, expected] : std::vector<std::pair<std::string, Ids>>{
           {R"({"content": "hello"})", hello},
           {R"({"content": "hello", "add_special": true})", begun},
           {R"({"prompt": "hello", "model": "alias"})", begun},
           {R"({"prompt": "hello", "add_special_tokens": false})", hello},
           {R"({"content": ""})", {}}}) {
    Tokenize out;
    const auto failed = decode_tokenize(body, served, out);
    EXPECT_FALSE(failed) << body << failed->message;
    EXPECT_EQ(out.ids, expected) << body;
    EXPECT_FALSE(out.want_strings);
  }
  Tokenize out;
  ASSERT_FALSE(decode_tokenize(chat(R"("return_token_strs": true)"), served, out));
  EXPECT_EQ(out.ids, decoded(Endpoint::kChat, chat(""), served).prompts[0]);
  EXPECT_TRUE(out.want_strings);
  for (const char* body : {"{}", R"({"content": "a", "prompt": "a"})", R"({"content": 5})", R"({"prompt": ["a"]})",
                           R"({"content": "a", "parse_special": true})", R"({"messages": []})", "[]"}) {
    const auto failed = decode_tokenize(body, served, out);
    ASSERT_TRUE(failed) << body;
    EXPECT_EQ(failed->status, 400u);
  }
  EXPECT_EQ(decode_tokenize(R"({"content": "a", "model": "x"})", served, out)->status, 404u);
}

TEST(DecodeTokenize, TurnsIdsBackOnlyInsideTheVocabulary) {
  Ids ids;
  ASSERT_FALSE(decode_detokenize(R"({"tokens": [1, 273], "model": "small"})", kModel.served(), ids));
  EXPECT_THAT(ids, ElementsAre(1, 273));
  ASSERT_FALSE(decode_detokenize(R"({"tokens": []})", kModel.served(), ids));
  EXPECT_THAT(ids, IsEmpty());
  for (const char* body : {"{}", R"({"tokens": [274]})", R"({"tokens": [-1]})", R"({"tokens": "a"})", R"({"tokens": [[1]]})",
                           R"({"tokens": null})", R"({"tokens": [4294967296]})"}) {
    const auto failed = decode_detokenize(body, kModel.served(), ids);
    ASSERT_TRUE(failed) << body;
    EXPECT_EQ(failed->status, 400u);
    EXPECT_EQ(failed->param, "tokens");
  }
}

}  // namespace
}  // namespace headwater::server::openai
