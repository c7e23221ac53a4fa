#include "backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <vector>

namespace headwater::backend::cpu {
namespace {

std::unique_ptr<ThreadPool> pool_of(uint32_t threads) {
  return std::move(ThreadPool::create(threads)).value();
}

TEST(ThreadPool, RunsEveryTaskOnceInManyRegions) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    const auto pool = pool_of(threads);
    std::vector<uint32_t> calls(64);
    uint64_t expected = 0;
    for (uint32_t region = 0; region < 3000; ++region) {
      const uint32_t tasks = region % 65;
      pool->run(tasks, [&](uint32_t task, uint32_t worker) {
        ASSERT_LT(worker, threads);
        ++calls[task];
      });
      expected += tasks;
    }
    uint64_t total = 0;
    for (const uint32_t count : calls) total += count;
    EXPECT_EQ(total, expected);
    EXPECT_EQ(calls[0], 3000u - 3000u / 65 - 1);  // all regions but the empty ones
  }
}

TEST(ThreadPool, ReturnsAfterTheSlowestTask) {
  const auto pool = pool_of(3);
  for (int region = 0; region < 20; ++region) {
    std::vector<uint32_t> done(7);
    pool->run(7, [&](uint32_t task, uint32_t) {
      if (task == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      done[task] = 1;
    });
    EXPECT_EQ(done, std::vector<uint32_t>(7, 1));
  }
}

TEST(ThreadPool, ShowsWhatTasksWroteToTheNextRegion) {
  const auto pool = pool_of(4);
  std::vector<uint64_t> values(16, 1), next(16);
  for (int region = 0; region < 500; ++region) {
    pool->run(16, [&](uint32_t task, uint32_t) { next[task] = values[task] + values[(task + 5) % 16] % 3; });
    std::swap(values, next);
  }
  std::vector<uint64_t> expected(16, 1);
  for (int region = 0; region < 500; ++region) {
    for (size_t i = 0; i < 16; ++i) next[i] = expected[i] + expected[(i + 5) % 16] % 3;
    std::swap(expected, next);
  }
  EXPECT_EQ(values, expected);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  const auto pool = pool_of(2);
  for (int region = 0; region < 10; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> arrived{0};
    pool->run(2, [&](uint32_t, uint32_t) {  // only ends when both threads hold a task
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
  }
}

TEST(ThreadPool, IsCreatedAndDestroyedInAnyOrder) {
  for (int turn = 0; turn < 30; ++turn) {
    const auto outer = pool_of(3);
    std::atomic<int> sum{0};
    outer->run(4, [&](uint32_t, uint32_t) { sum.fetch_add(1); });
    {
      const auto inner = pool_of(2);
      if (turn % 2 == 0) inner->run(8, [&](uint32_t, uint32_t) { sum.fetch_add(1); });
    }
    outer->run(4, [&](uint32_t, uint32_t) { sum.fetch_add(1); });
    EXPECT_EQ(sum.load(), turn % 2 == 0 ? 16 : 8);
  }
}

TEST(ThreadPool, UsesNoProcessorTimeWhenIdle) {
  const auto pool = pool_of(4);
  pool->run(8, [](uint32_t, uint32_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.02);
}

TEST(ThreadPool, RefusesSizesOutsideItsRange) {
  EXPECT_EQ(ThreadPool::create(0).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ThreadPool::create(5000).status().message(), "5000 threads; use 1 to 1024");
}

// Processor time of the whole process: other tests of the machine do not count.
TEST(ThreadPool, TakesNoProcessorTimeWhileIdle) {
  const auto pool = std::move(ThreadPool::create(4)).value();
  pool->run(64, [](uint32_t, uint32_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than any spin
  const auto processor_ms = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
  };
  const double before = processor_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(processor_ms() - before, 5.0);  // 1% of one core
}

}  // namespace
}  // namespace headwater::backend::cpu
