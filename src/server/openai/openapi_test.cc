#include "server/openai/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "server/openai/fields.h"
#include "server/openai/served_test_kit.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;

const TestModel kModel;

json::value description(bool needs_key = false) {
  return json::parse(openapi_json(kModel.served(), "1.2.3", needs_key));
}

const json::object& properties(const json::value& document, const char* schema) {
  return document.at("components").at("schemas").at(schema).at("properties").as_object();
}

TEST(OpenApi, DescribesEveryFieldThatIsPromised) {
  const json::value document = description();
  const std::vector<std::string> both = {"model",
                                         "max_tokens",
                                         "max_completion_tokens",
                                         "temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "n",
                                         "best_of",
                                         "seed",
                                         "stop",
                                         "stop_token_ids",
                                         "ignore_eos",
                                         "min_tokens",
                                         "logit_bias",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "repetition_penalty",
                                         "logprobs",
                                         "top_logprobs",
                                         "echo",
                                         "stream",
                                         "stream_options",
                                         "user",
                                         "cache_salt",
                                         "priority",
                                         "response_format"};
  for (const auto& [schema, own] :
       {std::pair{"ChatRequest", std::vector<std::string>{"messages", "tools", "tool_choice", "chat_template_kwargs",
                                                          "add_generation_prompt", "continue_final_message"}},
        {"CompletionRequest", std::vector<std::string>{"prompt"}}}) {
    std::vector<std::string> names = both;
    names.insert(names.end(), own.begin(), own.end());
    for (const std::string& name : names) {
      const json::value* property = properties(document, schema).if_contains(name);
      ASSERT_NE(property, nullptr) << schema << " lacks " << name;
      EXPECT_GT(property->at("description").as_string().size(), 5u) << name;
    }
  }
}

TEST(OpenApi, SaysWhatTheTableOfFieldsSays) {
  const json::value document = description();
  EXPECT_EQ(properties(document, "ChatRequest").at("temperature").at("anyOf").at(0),
            json::parse(R"({"type": "number", "minimum": 0.0, "maximum": 2.0})"));
  EXPECT_EQ(properties(document, "ChatRequest").at("max_tokens").at("anyOf").at(0).at("maximum"), json::value(256))
      << "the context";
  EXPECT_EQ(properties(document, "ChatRequest").at("temperature").at("default"), json::value(1));
  EXPECT_EQ(properties(document, "ChatRequest").at("tool_choice").at("enum"), json::parse(R"(["none", "auto", null])"));
  EXPECT_EQ(properties(document, "CompletionRequest").at("prompt").at("anyOf").at(2).at("items").at("maximum"),
            json::value(273));
  EXPECT_EQ(document.at("components").at("schemas").at("ChatRequest").at("required"), json::parse(R"(["messages"])"));
  for (const Field& field : fields()) {
    for (const auto& [schema, endpoint] : {std::pair{"ChatRequest", kInChat},
                                           {"CompletionRequest", kInCompletions},
                                           {"TokenizeRequest", kInTokenize},
                                           {"DetokenizeRequest", kInDetokenize}}) {
      EXPECT_EQ(properties(document, schema).contains(field.name), find_field(field.name, endpoint) != nullptr)
          << schema << " " << field.name;
    }
  }
}

TEST(OpenApi, DefaultsInTheTableAreWhatDecodingGives) {
  Generation out;
  ASSERT_FALSE(
      decode_generation(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "a"}]})", kModel.served(), out));
  std::string defaults;
  for (const Field& field : fields()) {
    if ((field.endpoints & kInChat) != 0 && !field.preset.empty())
      defaults += fmt::format(", \"{}\": {}", field.name, field.preset);
  }
  Generation spelled;
  ASSERT_FALSE(decode_generation(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "a"}])" + defaults + "}",
                                 kModel.served(), spelled));
  const auto fields_of = [](const Generation& g) {
    const engine::SamplingParams& s = g.sampling;
    return std::tuple(g.n, g.seeded, g.stream, g.priority, s.tokens_max, s.tokens_min, s.temperature, s.top_k, s.top_p,
                      s.min_p, s.repetition_penalty, s.frequency_penalty, s.presence_penalty, s.want_logprobs,
                      s.top_logprobs, g.prompts);
  };
  EXPECT_EQ(fields_of(spelled), fields_of(out));
}

TEST(OpenApi, DescribesEveryRouteAndItsErrors) {
  const json::value document = description(true);
  std::set<std::string> paths;
  for (const auto& [path, item] : document.at("paths").as_object()) {
    paths.emplace(path);
    const bool posts = item.as_object().contains("post");
    const json::object& responses = item.at(posts ? "post" : "get").at("responses").as_object();
    for (const char* status : posts ? std::vector{"200", "400", "401", "404", "413", "415", "500", "503"}
                                    : std::vector{"200", "500", "503"}) {
      EXPECT_TRUE(responses.contains(status)) << path << " " << status;
    }
    const bool open = item.at(posts ? "post" : "get").at("security").as_array().empty();
    EXPECT_EQ(open, path == "/health" || path == "/ping" || path == "/version" || path == "/metrics") << path;
  }
  EXPECT_EQ(paths, (std::set<std::string>{"/v1/chat/completions", "/v1/completions", "/v1/chat/completions/render",
                                          "/v1/completions/render", "/tokenize", "/detokenize", "/v1/tokenize",
                                          "/v1/detokenize", "/v1/models", "/v1/models/{model}", "/v1/cache",
                                          "/openapi.json", "/health", "/ping", "/version", "/metrics"}));
  EXPECT_FALSE(description().at("components").as_object().contains("securitySchemes"));
}

void collect_references(const json::value& value, std::set<std::string>& out) {
  if (const json::object* object = value.if_object()) {
    for (const auto& [name, entry] : *object) {
      if (name == "$ref") out.emplace(entry.as_string());
      collect_references(entry, out);
    }
  } else if (const json::array* array = value.if_array()) {
    for (const json::value& entry : *array) collect_references(entry, out);
  }
}

TEST(OpenApi, EveryReferenceHasATargetAndEverySchemaIsUsed) {
  const json::value document = description();
  std::set<std::string> references, schemas;
  collect_references(document, references);
  for (const auto& [name, schema] : document.at("components").at("schemas").as_object()) {
    schemas.insert("#/components/schemas/" + std::string(name));
  }
  EXPECT_EQ(references, schemas);
}

}  // namespace
}  // namespace headwater::server::openai
