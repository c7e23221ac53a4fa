#include "server/openai/decode.h"

#include "server/openai/decode_test_kit.h"
#include "server/openai/fields.h"

namespace headwater::server::openai {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
      {R"("stream_options": {"continuous_usage_stats": 1}, "stream": true)", "stream_options.continuous_usage_stats",
       "true"},
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
  ASSERT_FALSE(
      decode_generation(Endpoint::kCompletions, completion(R"("max_tokens": 3)"), kModel.served(), out, defaults));
  EXPECT_EQ(out.sampling.tokens_max, 3u);
}

TEST(DecodeFields, UnknownOnesAreIgnoredAndReported) {
  const std::string long_name(200, 'x');
  const Generation out =
      decoded(Endpoint::kCompletions,
              completion(R"("n_predict": 5, "cache_prompt": true, "repeat_penalty": 1.1, ")" + long_name + R"(": 1)"));
  EXPECT_THAT(out.unknown_fields, ElementsAre("cache_prompt", "repeat_penalty", std::string(80, 'x') + "..."));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += fmt::format(R"({}"f{}": 1)", i == 0 ? "" : ", ", i);
  EXPECT_LE(decoded(Endpoint::kCompletions, completion(many)).unknown_fields.size(), 32u);
}

TEST(DecodeFields, KnownButUnsupportedOnesMayAskForNothing) {
  for (const char* fields :
       {R"("tool_choice": "none")", R"("tool_choice": "auto")", R"("parallel_tool_calls": true)", R"("functions": [])",
        R"("response_format": {"type": "text"})", R"("logit_bias": {})", R"("n": 1, "best_of": 1)",
        R"("modalities": ["text"])", R"("store": false)", R"("service_tier": "auto")", R"("use_beam_search": false)",
        R"("skip_special_tokens": true)", R"("length_penalty": 1.0)", R"("length_penalty": 1)", R"("echo": false)",
        R"("return_token_ids": false)", R"("stop": [])", R"("structured_outputs": {})"}) {
    EXPECT_EQ(error_of(Endpoint::kChat, chat(fields)).status, 200u) << fields;
  }
  EXPECT_EQ(error_of(Endpoint::kCompletions, completion(R"("suffix": "")")).status, 200u);
  const std::vector<Wrong> cases = {
      {R"("tool_choice": "required")", "tool_choice", "cannot be forced yet"},
      {R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice", "nothing, or"},
      {R"("functions": [{"name": "f"}])", "functions", "use that"},
      {R"("function_call": {"name": "f"})", "function_call", "use that"},
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

}  // namespace
}  // namespace headwater::server::openai
