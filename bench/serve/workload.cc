#include "bench/serve/workload.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>

namespace headwater::bench::serve {
namespace {

namespace json = boost::json;

constexpr std::array kWords = {
    "river",   "stone",    "market",  "garden",  "winter",   "signal",   "letter",  "mountain", "silver",  "paper",
    "window",  "bridge",   "forest",  "travel",  "number",   "yellow",   "museum",  "planet",   "orange",  "border",
    "school",  "summer",   "village", "kitchen", "island",   "camera",   "honest",  "simple",   "modern",  "careful",
    "bright",  "quiet",    "explain", "compare", "describe", "measure",  "collect", "protect",  "prepare", "discover",
    "because", "although", "between", "toward",  "without",  "children", "people",  "teachers"};

Random stream(uint64_t seed, uint32_t kind, uint32_t number) {
  return Random(seed ^ (uint64_t{kind} << 60) ^ (uint64_t{number} << 32));
}

std::vector<TokenId> draw_ids(Random random, uint32_t count) {
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = kIdBegin + static_cast<TokenId>(random.below(kIdEnd - kIdBegin));
  return ids;
}

std::string draw_text(Random random, uint32_t tokens, double tokens_per_word) {
  std::string text;
  for (long words = std::lround(tokens / tokens_per_word); words > 0; --words) {
    text += text.empty() ? "" : " ";
    text += kWords[random.below(kWords.size())];
  }
  return text;
}

}  // namespace

std::vector<Prompt> make_prompts(const WorkloadShape& shape, uint32_t level, uint32_t count) {
  std::vector<Prompt> prompts(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t group = i % shape.groups;
    const Random prefix = stream(shape.seed, 1, group + (shape.cold ? (level + 1) * shape.groups : 0));
    Random own = stream(shape.seed, 2, level);
    own = stream(own() | uint64_t{own()} << 32, 3, i);
    Prompt& prompt = prompts[i];
    if (shape.endpoint == Endpoint::kCompletions) {
      prompt.ids = draw_ids(prefix, shape.shared_tokens);
      std::ranges::copy(draw_ids(own, shape.prompt_tokens), std::back_inserter(prompt.ids));
    } else {
      prompt.system = draw_text(prefix, shape.shared_tokens, shape.tokens_per_word);
      prompt.question = draw_text(own, shape.prompt_tokens, shape.tokens_per_word);
    }
  }
  return prompts;
}

std::string request_body(const WorkloadShape& shape, const std::string& model, const Prompt& prompt) {
  json::object body{{"model", model},   {"max_tokens", shape.tokens_max},
                    {"temperature", 0}, {"ignore_eos", true},
                    {"stream", true},   {"stream_options", json::object{{"include_usage", true}}}};
  if (shape.endpoint == Endpoint::kCompletions) {
    body["prompt"] = json::array(prompt.ids.begin(), prompt.ids.end());
  } else {
    json::array messages;
    if (!prompt.system.empty()) messages.push_back(json::object{{"role", "system"}, {"content", prompt.system}});
    messages.push_back(json::object{{"role", "user"}, {"content", prompt.question}});
    body["messages"] = std::move(messages);
  }
  return json::serialize(body);
}

std::string sizing_text() {
  std::string text;
  for (const char* word : kWords) text += std::string(text.empty() ? "" : " ") + word;
  return text;
}

uint32_t sizing_words() {
  return kWords.size();
}

}  // namespace headwater::bench::serve
