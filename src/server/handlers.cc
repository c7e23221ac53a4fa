// The handlers behind the table of routes.
#include <openssl/rand.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/json.hpp>
#include <boost/url/pct_string_view.hpp>

#include "observe/observe.h"
#include "server/application.h"
#include "server/cache_page.h"

namespace headwater::server {
namespace {

using boost::asio::awaitable;
using boost::asio::use_awaitable;
constexpr size_t kUnknownFieldsMax = 64;  // reported by name

awaitable<unsigned> respond(http::Exchange& exchange, http::Response response) {
  const unsigned status = response.status;
  const bool sent = co_await exchange.respond(std::move(response));
  co_return sent ? status : kClientGone;
}

awaitable<unsigned> respond_json(http::Exchange& exchange, std::string body) {
  http::Response response{.body = std::move(body)};
  co_return co_await respond(exchange, std::move(response));
}

awaitable<unsigned> respond_error(http::Exchange& exchange, const openai::ApiError error) {
  http::Response response = error_response(error);
  co_return co_await respond(exchange, std::move(response));
}

// One call of a decoder on the pool, so that megabytes of text hold up no stream. Nothing is decoded for a client that has
// left meanwhile.
using Gone = std::shared_ptr<std::atomic<bool>>;
template <typename Out>
using Decoder = std::optional<openai::ApiError> (*)(std::string_view, const openai::ServedModel&, Out&);

template <typename Out>
awaitable<std::optional<openai::ApiError>> call_decoder(Gone gone, Decoder<Out> decoder, const std::string* body,
                                                        const openai::ServedModel* model, Out* out) {
  if (gone->load()) co_return openai::ApiError{.status = kClientGone};
  co_return decoder(*body, *model, *out);
}

template <typename Out>
awaitable<std::optional<openai::ApiError>> decode_on(Decoders& decoders, Decoder<Out> decoder, http::Exchange& exchange,
                                                     const openai::ServedModel& model, Out& out) {
  const std::string body = exchange.take_body();
  boost::asio::thread_pool& pool = decoders.of(body);
  const Gone gone = std::make_shared<std::atomic<bool>>(false);
  exchange.on_client_gone([gone] { gone->store(true); });
  auto error =
      co_await boost::asio::co_spawn(pool, call_decoder<Out>(gone, decoder, &body, &model, &out), use_awaitable);
  exchange.on_client_gone({});
  exchange.release_body();
  co_return error;
}

template <openai::Endpoint kEndpoint>
std::optional<openai::ApiError> decode_for(std::string_view body, const openai::ServedModel& model,
                                           openai::Generation& out) {
  return openai::decode_generation(kEndpoint, body, model, out);
}

// Answers without the engine are made where the body is decoded: they may be as long.
template <openai::Endpoint kEndpoint>
std::optional<openai::ApiError> render_for(std::string_view body, const openai::ServedModel& model, std::string& out) {
  openai::Generation generation;
  if (auto error = openai::decode_generation(kEndpoint, body, model, generation)) return error;
  out = openai::render_json(generation,
                            (kEndpoint == openai::Endpoint::kChat ? "chatcmpl-" : "cmpl-") + new_request_id());
  return std::nullopt;
}

std::optional<openai::ApiError> tokenize_body(std::string_view body, const openai::ServedModel& model,
                                              std::string& out) {
  openai::Tokenize tokens;
  if (auto error = openai::decode_tokenize(body, model, tokens)) return error;
  out = openai::tokenize_json(tokens, model);
  return std::nullopt;
}

std::optional<openai::ApiError> detokenize_body(std::string_view body, const openai::ServedModel& model,
                                                std::string& out) {
  std::vector<TokenId> ids;
  if (auto error = openai::decode_detokenize(body, model, ids)) return error;
  out = openai::detokenize_json(ids, model);
  return std::nullopt;
}

}  // namespace

awaitable<std::optional<openai::ApiError>> Application::decode(http::Exchange& exchange, openai::Endpoint endpoint,
                                                               openai::Generation& out) {
  const Decoder<openai::Generation> decoder = endpoint == openai::Endpoint::kChat
                                                  ? decode_for<openai::Endpoint::kChat>
                                                  : decode_for<openai::Endpoint::kCompletions>;
  auto error = co_await decode_on(decoders_, decoder, exchange, serving_->model, out);
  if (!error) report_unknown(out);
  co_return error;
}

void Application::report_unknown(const openai::Generation& generation) {
  for (const std::string& field : generation.unknown_fields) {
    if (unknown_fields_.size() >= kUnknownFieldsMax || !unknown_fields_.insert(field).second) continue;
    observe::logger().warn("the request field {} is not known; ignored (said once)",
                           boost::json::serialize(boost::json::value(field)));  // control characters escaped
  }
}

uint64_t Application::next_seed() {
  if (config_.seed) {
    Random random(*config_.seed + seeds_drawn_++);
    return uint64_t{random()} << 32 | random();
  }
  uint64_t seed = 0;
  check(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof(seed)) == 1, "the system gave no random bytes");
  return seed;
}

// Requests share cached prefixes only under equal salts.
std::string Application::salt_of(const http::RequestHead& head, const std::string& salt) const {
  const auto key = config_.salt_per_key ? keys_.find(head.header("Authorization")) : std::nullopt;
  return key ? fmt::format("key {}:{}", *key, salt) : salt;
}

awaitable<unsigned> Application::generate(http::Exchange& exchange, const std::string& id, openai::Endpoint endpoint) {
  openai::Generation generation;
  const auto error = co_await decode(exchange, endpoint, generation);
  if (error) co_return co_await respond_error(exchange, *error);
  if (exchange.client_gone()) co_return kClientGone;
  if (!generation.seeded) generation.sampling.seed = next_seed();
  generation.cache_salt = salt_of(exchange.head(), generation.cache_salt);
  const auto executor = co_await boost::asio::this_coro::executor;
  Answer answer(serving_->model, serving_->service, metrics_, exchange, std::move(generation), id, executor);
  co_return co_await answer.run(config_.keep_alive);
}

awaitable<unsigned> Application::convert(http::Exchange& exchange, Converter converter) {
  std::string answer;
  const auto error = co_await decode_on(decoders_, converter, exchange, serving_->model, answer);
  if (error) co_return co_await respond_error(exchange, *error);
  co_return co_await respond_json(exchange, std::move(answer));
}

awaitable<unsigned> Application::chat_completions(http::Exchange& exchange, const std::string& id) {
  return generate(exchange, id, openai::Endpoint::kChat);
}
awaitable<unsigned> Application::completions(http::Exchange& exchange, const std::string& id) {
  return generate(exchange, id, openai::Endpoint::kCompletions);
}
awaitable<unsigned> Application::render_chat(http::Exchange& exchange, const std::string&) {
  return convert(exchange, render_for<openai::Endpoint::kChat>);
}
awaitable<unsigned> Application::render_completions(http::Exchange& exchange, const std::string&) {
  return convert(exchange, render_for<openai::Endpoint::kCompletions>);
}

awaitable<unsigned> Application::tokenize(http::Exchange& exchange, const std::string&) {
  return convert(exchange, tokenize_body);
}

awaitable<unsigned> Application::detokenize(http::Exchange& exchange, const std::string&) {
  return convert(exchange, detokenize_body);
}

awaitable<unsigned> Application::models(http::Exchange& exchange, const std::string&) {
  return respond_json(exchange, openai::models_json(serving_->model));
}

awaitable<unsigned> Application::model(http::Exchange& exchange, const std::string&) {
  const auto encoded = boost::urls::make_pct_string_view(exchange.head().path().substr(sizeof("/v1/models/") - 1));
  const std::string name = encoded ? encoded->decode() : "";
  for (const std::string& served : serving_->model.names) {
    if (served == name) co_return co_await respond_json(exchange, openai::model_json(serving_->model, name));
  }
  openai::ApiError error{.status = 404,
                         .message = fmt::format("The model '{}' is not served; use '{}'", name.substr(0, 80),
                                                serving_->model.names.front()),
                         .type = "not_found_error",
                         .param = "model",
                         .code = "model_not_found"};
  co_return co_await respond_error(exchange, std::move(error));
}

awaitable<unsigned> Application::health(http::Exchange& exchange, const std::string&) {
  std::optional<http::Response> response = not_ready();
  if (response) co_return co_await respond(exchange, std::move(*response));
  if (serving_ && serving_->service.is_broken()) {
    openai::ApiError broken{.status = 503,
                            .message = "The last steps of the engine failed. See the server's log and restart it.",
                            .type = "unavailable_error",
                            .code = "broken"};
    co_return co_await respond_error(exchange, std::move(broken));
  }
  co_return co_await respond_json(exchange, R"({"status":"ok"})");
}

// Whether the process lives and can work: draining is no reason to kill it.
awaitable<unsigned> Application::ping(http::Exchange& exchange, const std::string& id) {
  if (readiness_ == Readiness::kLoading || (serving_ && serving_->service.is_broken())) return health(exchange, id);
  return respond_json(exchange, R"({"status":"ok"})");
}

awaitable<unsigned> Application::version(http::Exchange& exchange, const std::string&) {
  return respond_json(exchange, fmt::format(R"({{"version":"{}"}})", config_.version));
}

awaitable<unsigned> Application::metrics(http::Exchange& exchange, const std::string&) {
  if (listener_ != nullptr) metrics_.connections.set(static_cast<double>(listener_->connections()));
  const MetricsPageConfig page{.model_name = serving_ ? serving_->model.names.front() : "",
                               .old_aliases = config_.old_metric_names};
  http::Response response{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = metrics_page(page, serving_ ? &serving_->service.engine() : nullptr, metrics_)};
  co_return co_await respond(exchange, std::move(response));
}

awaitable<unsigned> Application::openapi(http::Exchange& exchange, const std::string&) {
  return respond_json(exchange, openapi_);
}

// The engine thread looks, between two steps; this coroutine waits for it.
awaitable<unsigned> Application::cache(http::Exchange& exchange, const std::string&) {
  struct Look {
    explicit Look(const boost::asio::any_io_executor& executor) : done(executor) {}
    Wakeup done;
    engine::Snapshot snapshot;
    std::optional<Status> audit;
  };
  const auto executor = co_await boost::asio::this_coro::executor;
  const auto look = std::make_shared<Look>(executor);
  const bool audit = exchange.head().query() == "audit=true";
  serving_->service.on_engine_thread([look, audit, executor](const engine::Engine& engine) {
    look->snapshot = engine.snapshot();
    if (audit) look->audit = engine.audit();
    boost::asio::post(executor, [look] { look->done.notify(); });
  });
  const bool looked = co_await look->done.wait(std::chrono::minutes(1));
  if (!looked) {
    openai::ApiError error{.status = 503, .message = "The engine is busy; try again", .type = "unavailable_error"};
    co_return co_await respond_error(exchange, std::move(error));
  }
  co_return co_await respond_json(exchange, cache_page(look->snapshot, look->audit));
}

}  // namespace headwater::server
