// Fork-join over a fixed set of threads, for regions of a few microseconds.
//
//   caller   run(tasks) ── takes tasks ── waits for the last task ──▶ returns
//   workers  spin ──────── take tasks ─── spin ~50 us, then sleep until the next region
//
// 1. Tasks go out in increasing order through one counter; the caller takes them too, as worker 0. A region waits only
// for
//    tasks that somebody has taken: a thread that the system does not schedule delays nothing that it has not begun.
// 2. A taken task keeps its region open, so the region's fields do not change while somebody may read them.
// 3. Nothing allocates after create(). An idle pool sleeps on a futex.
//
// One thread calls run() at a time, and not from inside a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/core.h"

namespace headwater::backend::cpu {

class ThreadPool {
 public:
  // threads >= 1, the caller included. kInvalidArgument for other numbers, kExhausted when the system refuses a thread.
  static Result<std::unique_ptr<ThreadPool>> create(uint32_t threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  uint32_t size() const { return threads_; }

  // Calls f(task, worker) once for every task in [0, tasks); worker is in [0, size()). Returns when all calls have.
  template <typename F>
  void run(uint32_t tasks, F&& f) {
    using Function = std::remove_reference_t<F>;
    if (tasks <= 1 || threads_ == 1) {
      for (uint32_t task = 0; task < tasks; ++task) f(task, 0u);
      return;
    }
    const auto call = [](const void* context, uint32_t task, uint32_t worker) {
      (*static_cast<Function*>(const_cast<void*>(context)))(task, worker);
    };
    run_region(tasks, call, &f);
  }

 private:
  using Call = void (*)(const void* context, uint32_t task, uint32_t worker);

  explicit ThreadPool(uint32_t threads) : threads_(threads) {}
  void run_region(uint32_t tasks, Call call, const void* context);
  void take_tasks(uint32_t worker);
  void work(uint32_t worker);
  void wait_for_region(uint32_t seen);

  const uint32_t threads_;
  std::vector<std::thread> workers_;

  // The region; written by the caller between regions, read by holders of a task.
  uint32_t tasks_ = 0;
  Call call_ = nullptr;
  const void* context_ = nullptr;

  alignas(64) std::atomic<int64_t> untaken_{0};  // > 0: the next task is tasks_ - untaken_; may fall below 0
  alignas(64) std::atomic<int64_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> regions_{0};  // begun so far; sleepers wait for a change
  std::atomic<bool> stop_{false};
};

}  // namespace headwater::backend::cpu
