// The engine's thread, and the way between it and the network thread.
//
//   network thread: submit, poll, abandon ...            engine thread: step, step, ...
//          ^                                                    |
//          '---- one posted task: wake whoever has something ---'   (after a step; at most one is under way)
//
// All members belong to the network thread (the one that runs `io`) unless they say otherwise.
#pragma once

#include <boost/asio/io_context.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace headwater::server {

class EngineService {
 public:
  // Starts the thread. `engine` and `io` outlive it.
  EngineService(engine::Engine& engine, boost::asio::io_context& io);
  ~EngineService();  // stops after the step under way; what was not finished stays unfinished
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // wake: called when poll() has something new, until the last emission was polled or the request abandoned.
  Result<engine::RequestId> submit(engine::Request request, std::function<void()> wake);
  size_t poll(engine::RequestId request, std::span<engine::Emission> out);
  void finish_choice(engine::RequestId request, uint32_t choice) { engine_.finish_choice(request, choice); }
  // What it still emits is dropped; abandon() cancels it too. Unknown requests are left alone.
  void release(engine::RequestId request);
  void abandon(engine::RequestId request);
  void cancel_all();  // each ends as cancelled, and its waiter hears of it

  // Runs `look` on the engine thread between two steps, one look a step; it must not throw.
  void on_engine_thread(std::function<void(const engine::Engine&)> look);

  const engine::Engine& engine() const { return engine_; }
  // Several steps in a row have failed, as they do once a device has stopped working: requests get 500 from then on.
  bool is_broken() const { return steps_failed_.load(std::memory_order_relaxed) >= kStepsFailedMax; }

 private:
  static constexpr uint32_t kStepsFailedMax = 3;
  struct Waiter {
    std::function<void()> wake;  // empty: abandoned
    uint32_t choices_left = 0;
  };

  void run();                             // the engine thread
  void note(const Result<bool>& worked);  // the engine thread: of a step
  void look_around();                     // the engine thread
  void audit_when_idle();
  void announce();  // the engine thread: posts dispatch() unless one is under way
  void dispatch();

  engine::Engine& engine_;
  boost::asio::io_context& io_;
  std::unordered_map<engine::RequestId, Waiter> waiters_;
  std::vector<engine::RequestId> ready_;

  std::atomic<bool> announced_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> steps_failed_{0};  // since one that worked
  std::mutex looks_mutex_;
  std::deque<std::function<void(const engine::Engine&)>> looks_;  // guarded by looks_mutex_
  std::thread thread_;
};

}  // namespace headwater::server
