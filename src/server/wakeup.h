// A coroutine waits until somebody has news for it, or for a time. One waiter; one thread.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

namespace headwater::server {

class Wakeup {
 public:
  explicit Wakeup(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  void notify() {
    pending_ = true;
    timer_.cancel();
  }
  // true: notified, also before the call; false: the time is over.
  boost::asio::awaitable<bool> wait(std::chrono::nanoseconds longest) {
    if (!pending_) {
      timer_.expires_after(longest);
      co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    }
    co_return std::exchange(pending_, false);
  }

 private:
  boost::asio::steady_timer timer_;
  bool pending_ = false;
};

}  // namespace headwater::server
