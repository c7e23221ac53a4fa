#include "server/openai/prompt.h"

#include <chrono>

#include "server/openai/decode_test_kit.h"

namespace headwater::server::openai {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Ids = std::vector<TokenId>;

TEST(DecodePrompt, ReadsTextsAndIds) {
  const auto ids = [](std::string_view text) {
    return kModel.tokenizer().encode(text, text::SpecialTokens::kAsText).value();
  };
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": "hello"})").prompts, ElementsAre(ids("hello")));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": ["a", "hello"]})").prompts,
              ElementsAre(ids("a"), ids("hello")));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": [0, 273]})").prompts, ElementsAre(Ids{0, 273}));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": [[1], [2, 3]]})").prompts, ElementsAre(Ids{1}, Ids{2, 3}));
  EXPECT_THAT(decoded(Endpoint::kCompletions, R"({"prompt": [[104], [105]], "echo": true})").prompt_texts,
              ElementsAre(kModel.tokenizer().decode(Ids{104}, false), kModel.tokenizer().decode(Ids{105}, false)));
}

TEST(DecodePrompt, AWrongOneIsRefused) {
  for (const auto& [prompt, expected] :
       std::vector<std::pair<std::string, std::string>>{{"[-1]", "holds -1; expected token ids from 0 to 273"},
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
  EXPECT_EQ(error_of(Endpoint::kCompletions, R"({"prompt": "", "add_special_tokens": false})", model.served()).status,
            400u);
  EXPECT_EQ(error_of(Endpoint::kCompletions, R"({"prompt": [[]]})", model.served()).status, 400u);
}

TEST(DecodePrompt, PromptsTimesChoicesAreBounded) {
  const std::string prompts = R"({"prompt": [)" + repeat("\"a\", ", 31) + "\"a\"], \"n\": ";
  EXPECT_THAT(decoded(Endpoint::kCompletions, prompts + "4}").prompts, SizeIs(32));
  expect_wrong(Endpoint::kCompletions, prompts + "5}",
               {"", "prompt", "32 prompts and \"n\" is 5; expected at most 128"});
}

TEST(DecodePrompt, WhatIsEchoedIsBounded) {
  const std::string text(7000, 'a');
  const ServedModel served = kModel.served(7100);
  const auto body = [&](int n, const char* more) {
    return fmt::format(R"({{"prompt": [{0}], "n": {1}, "max_tokens": 0, "echo": {2}}})",
                       repeat("\"" + text + "\", ", 9) + "\"" + text + "\"", n, more);
  };
  EXPECT_EQ(error_of(Endpoint::kCompletions, body(12, "true"), served).status, 200u);
  EXPECT_EQ(error_of(Endpoint::kCompletions, body(12, "false"), served).status, 200u);
  const std::string longer =
      fmt::format(R"({{"prompt": "{}", "n": 128, "max_tokens": 0, "echo": true}})", std::string(70'000, 'a'));
  const ApiError error = error_of(Endpoint::kCompletions, longer, kModel.served(71'000));
  EXPECT_EQ(error.param, "echo");
  EXPECT_THAT(error.message, HasSubstr("8960000"));
}

TEST(DecodePrompt, LogProbabilitiesInOnePieceAreBounded) {
  const ServedModel served = kModel.served(1 << 16);
  const auto body = [](const char* more) {
    return fmt::format(R"({{"prompt": "hello", "n": 4, "max_tokens": 10000, "logprobs": 20{}}})", more);
  };
  EXPECT_EQ(error_of(Endpoint::kCompletions, body(""), served).param, "logprobs");
  EXPECT_THAT(error_of(Endpoint::kCompletions, body(""), served).message, HasSubstr("840000"));
  EXPECT_EQ(error_of(Endpoint::kCompletions, body(R"(, "stream": true)"), served).status, 200u);
}

TEST(DecodeContext, PromptAndAnswerMayFillItAndNotExceedIt) {
  const ServedModel served = kModel.served(10);
  const auto body = [](size_t tokens, std::string_view rest) {
    return R"({"prompt": [)" + repeat("1, ", tokens - 1) + "1]" + std::string(rest) + "}";
  };
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(9, ""), served).sampling.tokens_max, 1u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(6, R"(, "max_tokens": 4)"), served).sampling.tokens_max, 4u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(10, R"(, "max_tokens": 0)"), served).sampling.tokens_max, 0u);
  EXPECT_EQ(decoded(Endpoint::kCompletions, body(10, R"(, "max_tokens": 0, "echo": true)"), served).prompt_texts.size(),
            1u);
  for (const auto& [tokens, rest, param, numbers] :
       std::vector<std::tuple<size_t, std::string, std::string, std::string>>{
           {10, "", "prompt", "10 tokens, but \"prompt\" has 10"},
           {11, "", "prompt", "10 tokens, but \"prompt\" has 11"},
           {500, "", "prompt", "has 500"},
           {11, R"(, "max_tokens": 0)", "prompt", "has 11"},
           {6, R"(, "max_tokens": 5)", "max_tokens", "\"prompt\" has 6 tokens and \"max_tokens\" is 5, 11 in all"},
           {6, R"(, "n_predict": 5)", "n_predict", "\"n_predict\" is 5"},
           {6, R"(, "max_completion_tokens": 5, "max_tokens": 1)", "max_completion_tokens",
            "\"max_completion_tokens\" is 5"},
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
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  Tokenize tokens;  // whoever counts the tokens of a document may
  EXPECT_FALSE(decode_tokenize(R"({"content": ")" + text.substr(0, 100'000) + R"("})", kModel.served(), tokens));
  EXPECT_GT(tokens.ids.size(), kModel.served().context_max);
}

TEST(DecodeMessages, ContentIsATextNothingOrParts) {
  EXPECT_EQ(rendered(chat("")), "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(rendered(message(R"({"role": "assistant", "content": null})")), HasSubstr("assistant\n<|im_end|>"));
  EXPECT_THAT(rendered(message(
                  R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})")),
              HasSubstr("user\na\nb<|im_end|>"));
  EXPECT_THAT(rendered(message(R"({"role": "user", "content": []})")), HasSubstr("user\n<|im_end|>"));
  EXPECT_THAT(
      rendered(message(R"({"role": "assistant", "content": "x", "name": "n", "tool_calls": [], "refusal": null})")),
      HasSubstr("assistant\nx<|im_end|>"));
}

TEST(DecodeMessages, WhatOrderAndRolesMeanIsTheTemplatesBusiness) {
  EXPECT_THAT(rendered(message(R"({"role": "user", "content": "a"}, {"role": "user", "content": "b"})")),
              HasSubstr("user\na<|im_end|>\n<|im_start|>user\nb<|im_end|>"));
  EXPECT_THAT(rendered(message(R"({"role": "tool", "content": "42"})")), HasSubstr("tool\n42"));
  EXPECT_THAT(rendered(message(R"({"role": "wizard", "content": "a"})")), HasSubstr("wizard\na"));
  expect_wrong(Endpoint::kChat, message(R"({"role": "robot", "content": "a"})"),
               {"", "messages", "no role robot here"});
  expect_wrong(Endpoint::kChat, message(R"({"role": "user", "content": "a"}, {"role": "system", "content": "b"})"),
               {"", "messages", "system goes first"});
}

TEST(DecodeMessages, WrongOnesAreRefused) {
  const std::vector<Wrong> cases = {
      {"", "messages", "at least one"},
      {"5", "messages", "role and content"},
      {"null", "messages", "role and content"},
      {R"({"role": "user"})", "messages", "role and content"},
      {R"({"role": "user", "tool_calls": null})", "messages", "role and content"},
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
      {R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]})", "messages.tool_calls", "function"},
      {R"({"role": "assistant", "tool_calls": {}})", "messages.tool_calls", "a list of calls"},
      {R"({"role": "assistant", "tool_calls": [{"id": 1, "function": {"name": "f"}}]})", "messages.tool_calls", "id"},
      {R"({"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "f"}}]})", "messages.tool_calls",
       "type"},
      {R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]})", "messages.tool_calls",
       "arguments"},
      {R"({"role": "tool", "content": "x", "tool_call_id": {}})", "messages.tool_call_id", "a string"},
      {R"({"role": "assistant", "content": null, "function_call": {"name": "f"}})", "messages.function_call",
       "tool_calls"}};
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
    const Generation out =
        decoded(Endpoint::kChat, message(fmt::format(R"({{"role": "user", "content": "{}"}})", content)));
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
      {R"("chat_template_kwargs": {"tools": true})", "chat_template_kwargs.tools", "but not messages, tools"},
      {R"("documents": {})", "documents", "a list of objects"},
      {R"("documents": ["a"])", "documents", "a list of objects"},
      {R"("tools": {})", "tools", "a list of objects"},
      {R"("tools": [{"type": "function"}])", "tools", "function: {name"},
      {R"("tools": [{"type": "retrieval", "function": {"name": "f"}}])", "tools", "retrieval"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs", "[]"},
      {R"("add_generation_prompt": 1)", "add_generation_prompt", "1"}};
  for (const Wrong& wrong : cases) expect_wrong(Endpoint::kChat, chat(wrong.fields), wrong);
  EXPECT_EQ(
      error_of(Endpoint::kChat, chat(R"("chat_template_kwargs": {"enable_thinking": false, "thinking": null})")).status,
      200u);
}

// Shows what a template sees, as JSON.
constexpr std::string_view kShow =
    "{{ {'messages': messages, 'tools': tools, 'documents': documents, 'x': x|default('none')}|tojson }}";

std::string seen(std::string_view body) {
  static const TestModel model(false, kShow);
  return rendered(body, model);
}

TEST(DecodeMessages, ToolsDocumentsAndVariablesReachTheTemplateAsTheyAre) {
  const std::string tool = R"({"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [null]}}})";
  EXPECT_EQ(seen(chat("")), R"({"messages": [{"role": "user", "content": "hello"}], "tools": null, "documents": null, )"
                            R"("x": "none"})");
  EXPECT_THAT(seen(chat("\"tools\": [" + tool + "]")), HasSubstr("\"tools\": [" + tool + "]"));
  EXPECT_THAT(seen(chat("\"tools\": [" + tool + "], \"tool_choice\": \"auto\"")), HasSubstr(tool));
  EXPECT_THAT(seen(chat("\"tools\": [" + tool + "], \"tool_choice\": \"none\"")), HasSubstr("\"tools\": null"));
  EXPECT_THAT(seen(chat(R"("tools": [], "documents": [])")), HasSubstr(R"("tools": null, "documents": null)"));
  EXPECT_THAT(seen(chat(R"("documents": [{"text": "t", "n": 1.5}])")), HasSubstr(R"([{"text": "t", "n": 1.5}])"));
  EXPECT_THAT(seen(chat(R"("chat_template_kwargs": {"x": {"a": [1, "b"]}})")), HasSubstr(R"("x": {"a": [1, "b"]})"));
}

TEST(DecodeMessages, CallsAndResultsOfToolsReachTheTemplate) {
  const auto call = [](std::string_view arguments) {
    return fmt::format(R"([{{"id": "1", "type": "function", "function": {{"name": "f", "arguments": {}}}}}])",
                       arguments);
  };
  const auto calling = [&](std::string_view arguments) {
    return message(fmt::format(R"({{"role": "assistant", "tool_calls": {}}})", call(arguments)));
  };
  EXPECT_THAT(seen(calling(R"("{\"a\": [1]}")")), HasSubstr("\"tool_calls\": " + call(R"({"a": [1]})")));
  EXPECT_THAT(seen(calling(R"("{\"a\": [1]}")")), HasSubstr("\"content\": null"));
  EXPECT_THAT(seen(calling(R"({"a": 1})")), HasSubstr(call(R"({"a": 1})")));
  EXPECT_THAT(seen(calling(R"("[1]")")), HasSubstr(call(R"("[1]")"))) << "no object";
  EXPECT_THAT(seen(calling(R"("{\"a\": ")")), HasSubstr(call(R"("{\"a\": ")"))) << "no JSON";
  EXPECT_THAT(
      seen(message(R"({"role": "tool", "tool_call_id": "1", "name": null, "content": "42", "tool_calls": []})")),
      HasSubstr(R"([{"role": "tool", "tool_call_id": "1", "content": "42"}])"));
  const TestModel texts(false,
                        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}"
                        "{% endfor %}{% endfor %}");
  EXPECT_EQ(rendered(calling(R"("{\"a\": 1}")"), texts), R"({"a": 1})") << "a template that writes them as they are";
}

TEST(DecodeMessages, PartsStayAListWhereTheTemplateReadsLists) {
  const TestModel lists(false,
                        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                        "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}");
  const std::string parts =
      R"({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})";
  EXPECT_EQ(rendered(message(parts), lists), "ab");
  EXPECT_THAT(rendered(message(parts)), HasSubstr("a\nb"));
}

TEST(DecodeMessages, ControlStringsOfToolsAndVariablesStayText) {
  const TestModel model(false, std::string(kShow) + "<|im_end|>");
  const std::string marked = R"("<|im_end|>")";
  for (const std::string& body :
       {message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"<|im_end|>": )" +
                marked + "}}}]}"),
        message(R"({"role": "<|im_end|>", "<|im_end|>": ["<|im_end|>"], "content": "x"})"),
        chat(R"("tools": [{"type": "function", "function": {"name": "<|im_end|>"}}])"),
        chat(R"("documents": [{"text": "<|im_end|>"}])"), chat(R"("chat_template_kwargs": {"x": "<|im_end|>"})")}) {
    const Generation out = decoded(Endpoint::kChat, body, model.served());
    EXPECT_EQ(std::ranges::count(out.prompts[0], model.tokenizer().eos()), 1) << body << ": the template's own";
  }
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

// A tokenizer's file may put much in place of little.
TEST(DecodePrompt, ATextThatTheTokenizersFileMultipliesIsRefusedByName) {
  text::TestVocabulary vocabulary("gpt-2");
  vocabulary.spec().normalizer = {
      {.kind = text::NormalizerStep::Kind::kReplace, .pattern = {"h", false}, .content = std::string(1024, 'a')}};
  const text::Tokenizer tokenizer = vocabulary.tokenizer();
  ServedModel served = kModel.served();
  served.tokenizer = &tokenizer;
  const std::string prompt = fmt::format(R"({{"prompt": "{}"}})", std::string(100, 'h'));
  const std::string messages =
      fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", std::string(1000, 'h'));
  Tokenize out;
  const std::optional<ApiError> refusals[] = {error_of(Endpoint::kCompletions, prompt, served),
                                              error_of(Endpoint::kChat, messages, served),
                                              decode_tokenize(prompt, served, out)};
  for (const auto& [refusal, param] :
       {std::pair(refusals[0], "prompt"), {refusals[1], "messages"}, {refusals[2], "prompt"}}) {
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->status, 400);
    EXPECT_EQ(refusal->param, param);
    EXPECT_THAT(refusal->message, HasSubstr("the tokenizer's normaliser makes more than"));
  }
}

TEST(DecodeTokenize, TakesOneOfThreeSources) {
  const TestModel model(true);
  const ServedModel served = model.served();
  const Ids hello = model.tokenizer().encode("hello", text::SpecialTokens::kAsText).value();
  Ids begun{model.tokenizer().bos()};
  begun.insert(begun.end(), hello.begin(), hello.end());
  for (const auto& [body, expected] :
       std::vector<std::pair<std::string, Ids>>{{R"({"content": "hello"})", hello},
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
  for (const char* body : {"{}", R"({"tokens": [274]})", R"({"tokens": [-1]})", R"({"tokens": "a"})",
                           R"({"tokens": [[1]]})", R"({"tokens": null})", R"({"tokens": [4294967296]})"}) {
    const auto failed = decode_detokenize(body, kModel.served(), ids);
    ASSERT_TRUE(failed) << body;
    EXPECT_EQ(failed->status, 400u);
    EXPECT_EQ(failed->param, "tokens");
  }
  const std::string many = fmt::format(R"({{"tokens": [{}1]}})", repeat("1, ", 256));
  EXPECT_TRUE(decode_detokenize(many, kModel.served(), ids)) << "more than a context";
  EXPECT_FALSE(decode_detokenize(many, kModel.served(257), ids));
}

}  // namespace
}  // namespace headwater::server::openai
