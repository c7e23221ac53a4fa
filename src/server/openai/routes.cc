#include "server/openai/routes.h"

namespace headwater::server::openai {
namespace {

constexpr std::string_view kName = "{model}";

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", "createChatCompletion", "Answer a conversation.", "ChatCompletion", "ChatRequest",
     true},
    {"POST", "/v1/completions", "createCompletion", "Continue one or more prompts.", "Completion", "CompletionRequest",
     true},
    {"POST", "/v1/chat/completions/render", "renderChatCompletion", "The token ids that a chat request would compute.",
     "Rendered", "ChatRequest"},
    {"POST", "/v1/completions/render", "renderCompletion", "The token ids that a completion request would compute.",
     "RenderedList", "CompletionRequest"},
    {"POST", "/tokenize", "tokenize", "Text to token ids.", "Tokens", "TokenizeRequest"},
    {"POST", "/v1/tokenize", "tokenizeV1", "Text to token ids.", "Tokens", "TokenizeRequest"},
    {"POST", "/detokenize", "detokenize", "Token ids to text.", "Text", "DetokenizeRequest"},
    {"POST", "/v1/detokenize", "detokenizeV1", "Token ids to text.", "Text", "DetokenizeRequest"},
    {"GET", "/v1/models", "listModels", "The names that are served.", "Models"},
    {"GET", "/v1/models/{model}", "getModel", "One served name.", "Model"},
    {"GET", "/v1/cache", "getCache", "The KV pool, and which sequences share which prefix.", "Cache"},
    {"GET", "/openapi.json", "getDescription", "This description.", "Description"},
    {"GET", "/health", "getHealth", "200 when requests are taken; 503 while the model loads.", "Health", "", false,
     true, false},
    {"GET", "/ping", "ping", "The same as /health.", "Health", "", false, true, false},
    {"GET", "/version", "getVersion", "The program's version.", "Version", "", false, true, false},
    {"GET", "/metrics", "getMetrics", "Metrics in the text format of Prometheus.", "", "", false, true, false},
};

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with(kName)) return path == route.path;
  const std::string_view front = route.path.substr(0, route.path.size() - kName.size());
  return path.size() > front.size() && path.starts_with(front);
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

const Route* find_route(std::string_view method, std::string_view path) {
  for (const Route& route : kRoutes) {
    if ((method.empty() || method == route.method) && matches(route, path)) return &route;
  }
  return nullptr;
}

}  // namespace headwater::server::openai
