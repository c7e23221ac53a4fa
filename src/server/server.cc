#include "server/server.h"

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>

#include "observe/observe.h"
#include "server/application.h"

namespace headwater::server {
namespace {

constexpr std::chrono::seconds kLastWords{3};
constexpr std::chrono::milliseconds kLastEvents{300};

class HttpServer final : public Server {
 public:
  HttpServer(ServerConfig config, KeyStore keys)
      : config_(std::move(config)),
        application_({.version = config_.version,
                      .keep_alive = config_.keep_alive,
                      .salt_per_key = config_.salt_per_key,
                      .old_metric_names = config_.old_metric_names,
                      .seed = config_.seed},
                     std::move(keys)),
        signals_(io_, SIGTERM, SIGINT),
        tick_(io_) {}

  Status listen() {
    HEADWATER_ASSIGN_OR_RETURN(
        listener_, http::Listener::open(io_, config_.host, config_.port, config_.limits, config_.tls, application_));
    application_.watch(*listener_);
    return {};
  }

  uint16_t port() const override { return listener_->port(); }

  void serve(openai::ServedModel model, engine::Engine& engine) override {
    boost::asio::post(io_, [this, model = std::move(model), &engine] {
      if (state_ != State::kRunning) return;
      service_ = std::make_unique<EngineService>(engine, io_);
      application_.start_serving({model, *service_});
    });
  }

  void drain() override {
    boost::asio::post(io_, [this] { drain_or_stop(); });
  }
  void stop_now() override {
    boost::asio::post(io_, [this] { stop(); });
  }

  void run() override {
    wait_for_signal();
    tick();
    while (state_ != State::kStopped) io_.run_one();
    signals_.cancel();
    tick_.cancel();
    listener_->stop_accepting();           // connections that wait to be accepted are reset, not left waiting
    if (service_) service_->cancel_all();  // streams end with an error event, if their clients read it
    const auto last_words = std::chrono::steady_clock::now() + kLastEvents;
    while (application_.answers_open() > 0 && std::chrono::steady_clock::now() < last_words) {
      io_.run_one_for(std::chrono::milliseconds(20));
    }
    // Answers that were cut off unwind here, while the engine's thread still takes their cancellations.
    listener_->drop_all();
    while (listener_->connections() > 0 || application_.answers_open() > 0) {
      io_.run_one_for(std::chrono::milliseconds(100));
      listener_->drop_all();
    }
    io_.poll();  // what was accepted and not looked at yet is closed
    service_.reset();
  }

 private:
  enum class State : uint8_t { kRunning, kDraining, kStopped };

  void wait_for_signal() {
    signals_.async_wait([this](const boost::system::error_code& failed, int) {
      if (failed) return;
      drain_or_stop();
      wait_for_signal();
    });
  }

  void drain_or_stop() {
    if (state_ != State::kRunning) return stop();
    const auto level = application_.answers_open() > 0 ? spdlog::level::warn : spdlog::level::info;
    observe::logger().log(level, "stopping: {} answers in progress, {} s at most; a second signal stops at once",
                          application_.answers_open(), std::chrono::duration<double>(config_.drain).count());
    state_ = State::kDraining;
    answered_until_ = std::chrono::steady_clock::now();
    drain_until_ = answered_until_ + config_.drain;
    application_.start_draining();
    listener_->stop_accepting();
  }

  void stop() { state_ = State::kStopped; }

  // Looks now and then whether the drain has come to its end.
  void tick() {
    if (state_ == State::kDraining) {
      // Those that are still sending a request get 503, those that still read an answer the rest of it.
      const auto now = std::chrono::steady_clock::now();
      if (application_.answers_open() > 0) answered_until_ = now;
      if (listener_->connections() == 0 || now > answered_until_ + kLastWords) return stop();
      if (now > drain_until_) {
        observe::logger().warn("the drain took too long: {} answers are cut off", application_.answers_open());
        return stop();
      }
    }
    tick_.expires_after(std::chrono::milliseconds(50));
    tick_.async_wait([this](const boost::system::error_code& failed) {
      if (!failed) tick();
    });
  }

  const ServerConfig config_;
  Application application_;  // outlives what io_ may still hold of its answers
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  boost::asio::steady_timer tick_;
  std::unique_ptr<http::Listener> listener_;
  std::unique_ptr<EngineService> service_;
  State state_ = State::kRunning;
  std::chrono::steady_clock::time_point drain_until_, answered_until_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::open(ServerConfig config) {
  HEADWATER_ASSIGN_OR_RETURN(KeyStore keys, KeyStore::create(config.keys));
  auto server = std::make_unique<HttpServer>(std::move(config), std::move(keys));
  HEADWATER_RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace headwater::server
