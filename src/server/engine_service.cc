#include "server/engine_service.h"

#include <array>
#include <boost/asio/post.hpp>

#include "observe/observe.h"

namespace headwater::server {
namespace {

constexpr int64_t kIdleWaitNs = 1'000'000'000;

}  // namespace

EngineService::EngineService(engine::Engine& engine, boost::asio::io_context& io)
    : engine_(engine), io_(io), thread_([this] { run(); }) {}

EngineService::~EngineService() {
  stopping_.store(true);
  engine_.stop();
  thread_.join();
}

Result<engine::RequestId> EngineService::submit(engine::Request request, std::function<void()> wake) {
  const uint32_t choices = request.n;
  HEADWATER_ASSIGN_OR_RETURN(const engine::RequestId id, engine_.submit(std::move(request)));
  waiters_.emplace(id, Waiter{std::move(wake), choices});
  return id;
}

size_t EngineService::poll(engine::RequestId request, std::span<engine::Emission> out) {
  const auto found = waiters_.find(request);
  if (found == waiters_.end()) return 0;
  const size_t count = engine_.poll(request, out);
  for (const engine::Emission& emission : out.first(count)) {
    if (emission.finish != engine::FinishReason::kNone) --found->second.choices_left;
  }
  if (found->second.choices_left == 0) waiters_.erase(found);
  return count;
}

void EngineService::release(engine::RequestId request) {
  const auto found = waiters_.find(request);
  if (found == waiters_.end()) return;
  found->second.wake = nullptr;
  announce();  // what lies in its ring already
}

void EngineService::abandon(engine::RequestId request) {
  if (waiters_.contains(request)) engine_.cancel(request);
  release(request);
}

void EngineService::cancel_all() {
  for (const auto& [request, waiter] : waiters_) engine_.cancel(request);
}

void EngineService::on_engine_thread(std::function<void(const engine::Engine&)> look) {
  {
    std::lock_guard lock(looks_mutex_);
    looks_.push_back(std::move(look));
  }
  engine_.wake();
}

void EngineService::run() {
  bool worked_since_audit = false;
  while (!stopping_.load(std::memory_order_relaxed)) {
    look_around();
    auto worked = engine_.step();
    announce();
    note(worked);
    if (!worked || *worked) {
      worked_since_audit = true;
      continue;
    }
    if (engine_.wait_for_work(kIdleWaitNs) || stopping_.load(std::memory_order_relaxed)) continue;
    if (worked_since_audit) audit_when_idle();
    worked_since_audit = false;
  }
}

void EngineService::note(const Result<bool>& worked) {
  if (worked) {
    if (*worked) steps_failed_.store(0, std::memory_order_relaxed);
    return;
  }
  const uint32_t failed = steps_failed_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (failed <= kStepsFailedMax) observe::logger().error("step: {}", worked.status().message());
  if (failed == kStepsFailedMax) {
    observe::logger().critical("{} steps in a row have failed: /health says so from now on; restart the server",
                               failed);
  }
}

void EngineService::look_around() {
  std::function<void(const engine::Engine&)> look;
  {
    std::lock_guard lock(looks_mutex_);
    if (looks_.empty()) return;
    look = std::move(looks_.front());
    looks_.pop_front();
    if (!looks_.empty()) engine_.wake();
  }
  look(engine_);
}

void EngineService::audit_when_idle() {
  const Status status = engine_.audit();
  if (!status) observe::logger().critical("audit: {}", status.message());
}

void EngineService::announce() {
  if (announced_.exchange(true, std::memory_order_acq_rel)) return;
  boost::asio::post(io_, [this] { dispatch(); });
}

void EngineService::dispatch() {
  announced_.store(false, std::memory_order_release);
  engine_.ready(ready_);
  std::array<engine::Emission, 64> dropped;
  for (const engine::RequestId request : ready_) {
    const auto found = waiters_.find(request);
    if (found == waiters_.end()) continue;
    if (found->second.wake) {
      const auto wake = found->second.wake;  // it may end the request
      wake();
    } else {
      while (poll(request, dropped) > 0) {
      }
    }
  }
}

}  // namespace headwater::server
