// What the server answers: one table of routes, who may ask, and when.
//
//   admit (header):  key -> route -> method -> content type -> ready?       answer (body): the route's handler
//
// Everything runs on the network thread; decoding of bodies runs on a small pool, that of large ones on a thread of its
// own, so that nobody with a chat to send waits for somebody's megabytes. Their answers without the engine are made there too.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "server/answer.h"
#include "server/error_response.h"
#include "server/key_store.h"

namespace headwater::server {

enum class Readiness : uint8_t { kLoading, kReady, kDraining };

struct ApplicationConfig {
  std::string version;
  std::chrono::milliseconds keep_alive{5000};
  bool salt_per_key = false;  // requests of different keys share no cached prefix
  bool old_metric_names = false;
  std::optional<uint64_t> seed;  // of the requests without one; nothing: a random one for each
};

// The model being served.
struct Serving {
  openai::ServedModel model;
  EngineService& service;
};

// Bodies above http::kSmallBodyBytes are decoded one after the other.
struct Decoders {
  boost::asio::thread_pool& of(const std::string& body) { return body.size() > http::kSmallBodyBytes ? large : small; }
  boost::asio::thread_pool small{2};
  boost::asio::thread_pool large{1};
};

std::string new_request_id();

class Application final : public http::Application {
 public:
  Application(ApplicationConfig config, KeyStore keys);
  ~Application() override;

  // `serving` outlives the application's last answer.
  void start_serving(const Serving& serving);
  void start_draining() { readiness_ = Readiness::kDraining; }
  size_t answers_open() const { return answers_open_; }
  void watch(const http::Listener& listener) { listener_ = &listener; }  // for the metrics

  std::optional<http::Response> admit(const http::RequestHead& head) override;
  boost::asio::awaitable<void> answer(http::Exchange& exchange) override;
  http::Response failure(unsigned status, std::string message) override;

 private:
  // A handler answers by itself and returns the status; kClientGone where nobody hears it.
  using Handler = boost::asio::awaitable<unsigned> (Application::*)(http::Exchange& exchange, const std::string& id);
  static Handler handler_of(std::string_view id);
  std::optional<http::Response> refuse(openai::ApiError error);
  std::optional<http::Response> not_ready() const;

  boost::asio::awaitable<unsigned> chat_completions(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> completions(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> render_chat(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> render_completions(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> tokenize(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> detokenize(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> models(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> model(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> health(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> ping(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> version(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> metrics(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> openapi(http::Exchange& exchange, const std::string& id);
  boost::asio::awaitable<unsigned> cache(http::Exchange& exchange, const std::string& id);

  boost::asio::awaitable<unsigned> generate(http::Exchange& exchange, const std::string& id, openai::Endpoint endpoint);
  using Converter = std::optional<openai::ApiError> (*)(std::string_view body, const openai::ServedModel&,
                                                        std::string& answer);
  boost::asio::awaitable<unsigned> convert(http::Exchange& exchange, Converter converter);
  boost::asio::awaitable<std::optional<openai::ApiError>> decode(http::Exchange& exchange, openai::Endpoint endpoint,
                                                                 openai::Generation& out);
  void report_unknown(const openai::Generation& generation);
  uint64_t next_seed();
  std::string salt_of(const http::RequestHead& head, const std::string& salt) const;
  void count(unsigned status);

  const ApplicationConfig config_;
  const KeyStore keys_;
  Decoders decoders_;
  ServerMetrics metrics_;
  Readiness readiness_ = Readiness::kLoading;
  std::optional<Serving> serving_;
  std::string openapi_;
  std::set<std::string> unknown_fields_;  // reported already
  uint64_t seeds_drawn_ = 0;
  size_t answers_open_ = 0;
  const http::Listener* listener_ = nullptr;
};

}  // namespace headwater::server
