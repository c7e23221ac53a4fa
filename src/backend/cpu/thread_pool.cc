#include "backend/cpu/thread_pool.h"

#include <immintrin.h>

#include <chrono>
#include <system_error>

namespace headwater::backend::cpu {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr auto kSpin = std::chrono::microseconds(50);  // longer than the gaps between the regions of a step
constexpr int kPausesPerClock = 32;

// Spins until ready() or until kSpin has passed; tells which.
template <typename Ready>
bool spin_until(const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (ready()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(uint32_t threads) {
  if (threads == 0 || threads > kThreadsMax) {
    return error(ErrorCode::kInvalidArgument, "{} threads; use 1 to {}", threads, kThreadsMax);
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads));
  pool->workers_.reserve(threads - 1);
  try {
    for (uint32_t worker = 1; worker < threads; ++worker) {
      pool->workers_.emplace_back([raw = pool.get(), worker] { raw->work(worker); });
    }
  } catch (const std::system_error& failure) {
    return error(ErrorCode::kExhausted, "the system refused thread {} of {} ({}); ask for fewer threads",
                 pool->workers_.size() + 2, threads, failure.what());
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  regions_.fetch_add(1);
  regions_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_region(uint32_t tasks, Call call, const void* context) {
  tasks_ = tasks;
  call_ = call;
  context_ = context;
  unfinished_.store(tasks, std::memory_order_relaxed);
  untaken_.store(tasks, std::memory_order_release);
  regions_.fetch_add(1);
  regions_.notify_all();
  take_tasks(0);
  const auto finished = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  while (!spin_until(finished)) std::this_thread::yield();  // the holder of the last task may need this core
}

void ThreadPool::take_tasks(uint32_t worker) {
  int64_t finished = 0;
  while (untaken_.load(std::memory_order_relaxed) > 0) {
    const int64_t left = untaken_.fetch_sub(1, std::memory_order_acq_rel);
    if (left <= 0) break;
    call_(context_, tasks_ - static_cast<uint32_t>(left), worker);
    ++finished;
  }
  if (finished > 0) unfinished_.fetch_sub(finished, std::memory_order_acq_rel);
}

void ThreadPool::work(uint32_t worker) {
  while (true) {
    const uint32_t seen = regions_.load();
    if (stop_.load(std::memory_order_relaxed)) return;
    take_tasks(worker);
    wait_for_region(seen);
  }
}

void ThreadPool::wait_for_region(uint32_t seen) {
  const auto begun = [&] { return regions_.load(std::memory_order_acquire) != seen; };
  if (!spin_until(begun)) regions_.wait(seen);
}

}  // namespace headwater::backend::cpu
