#include "bench/serve/load.h"

#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>

namespace headwater::bench::serve {
namespace {

namespace asio = boost::asio;
using Millis = std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Vanish draw_vanish(Random& random, const LoadShape& shape) {
  constexpr uint32_t kPauseMillisMax = 300;
  constexpr std::array kPoints = {Vanish::Point::kBeforeSend, Vanish::Point::kWaiting, Vanish::Point::kMidStream,
                                  Vanish::Point::kPaused};
  if (random.uniform() >= static_cast<float>(shape.cancel_fraction)) return {};
  return {kPoints[random.below(kPoints.size())], Millis(random.below(kPauseMillisMax)),
          random.between(1, shape.tokens_max), random.below(2) == 0};
}

class Load {
 public:
  Load(const Target& target, const std::string& path, const std::vector<std::string>& bodies, const LoadShape& shape,
       const Progress& progress)
      : target_(target), path_(path), bodies_(bodies), shape_(shape), progress_(progress) {
    Random random(shape.seed);
    result_.answers.resize(bodies.size());
    for (size_t i = 0; i < bodies.size(); ++i) vanish_.push_back(draw_vanish(random, shape));
    for (size_t i = 0; i < bodies.size(); ++i) gaps_.push_back(-std::log(1.0 - random.uniform()) / shape.request_rate);
  }

  LevelResult run() {
    const double cpu_before = cpu_seconds();
    start_ = SteadyClock::now();
    for (uint32_t i = 0; i < shape_.slow_readers; ++i) asio::co_spawn(io_, read_slowly(i), asio::detached);
    if (shape_.request_rate > 0) {
      asio::co_spawn(io_, arrive(), asio::detached);
    } else {
      for (uint32_t i = 0; i < shape_.concurrency; ++i) asio::co_spawn(io_, ask_again(), asio::detached);
    }
    if (progress_) asio::co_spawn(io_, show_progress(), asio::detached);
    io_.run();
    result_.client_cpu_seconds = cpu_seconds() - cpu_before;
    return std::move(result_);
  }

 private:
  asio::awaitable<void> ask_again() {
    Connection connection(io_, target_, path_);
    while (next_ < bodies_.size()) {
      const size_t index = next_++;
      co_await ask(connection, index);
    }
  }

  asio::awaitable<void> arrive() {
    asio::steady_timer timer(io_);
    SteadyClock::time_point due = start_;
    for (size_t index = 0; index < bodies_.size(); ++index) {
      due += std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(gaps_[index]));
      timer.expires_at(due);
      boost::system::error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      asio::co_spawn(io_, ask_once(index), asio::detached);
    }
  }

  asio::awaitable<void> ask_once(size_t index) {
    Connection connection(io_, target_, path_);
    co_await ask(connection, index);
  }

  // The last answer ends the level; whatever still waits (slow readers, the progress) is dropped.
  asio::awaitable<void> ask(Connection& connection, size_t index) {
    StreamRequest request;
    request.body = &bodies_[index];
    request.vanish = vanish_[index];
    request.timeout = shape_.timeout;
    request.on_chunk = [this] { ++chunks_; };
    co_await connection.ask(request, result_.answers[index]);
    if (++ended_ < bodies_.size()) co_return;
    result_.seconds = std::chrono::duration<double>(SteadyClock::now() - start_).count();
    io_.stop();
  }

  asio::awaitable<void> read_slowly(size_t number) {
    Connection connection(io_, target_, path_);
    StreamRequest request;
    request.body = &bodies_[number % bodies_.size()];
    request.vanish = {Vanish::Point::kPaused, std::chrono::hours(1), 1, true};
    request.receive_buffer_bytes = 4096;
    Answer unused;
    co_await connection.ask(request, unused);
  }

  asio::awaitable<void> show_progress() {
    asio::steady_timer timer(io_);
    for (;;) {
      timer.expires_after(Millis(200));
      boost::system::error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      progress_(ended_, bodies_.size(), chunks_);
    }
  }

  asio::io_context io_{1};  // first: the coroutines it drops at its end refer to nothing below
  const Target& target_;
  const std::string& path_;
  const std::vector<std::string>& bodies_;
  const LoadShape& shape_;
  const Progress& progress_;
  std::vector<Vanish> vanish_;  // of each request
  std::vector<double> gaps_;    // seconds before each arrival
  LevelResult result_;
  SteadyClock::time_point start_;
  size_t next_ = 0, ended_ = 0;
  uint64_t chunks_ = 0;
};

}  // namespace

LevelResult run_load(const Target& target, const std::string& path, const std::vector<std::string>& bodies,
                     const LoadShape& shape, const Progress& progress) {
  return Load(target, path, bodies, shape, progress).run();
}

}  // namespace headwater::bench::serve
