// Planning never touches the heap after create(): this binary counts every allocation.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "attention/attention.h"
#include "support/forest.h"

namespace {
std::atomic<uint64_t> allocations{0};
}

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace headwater::attention {
namespace {

using testing::PageTableStorage;
using testing::SequencePages;

TEST(PlannerAllocation, NoStepAllocatesWhateverTheMembershipDoes) {
  const auto all = testing::make_tree({.nodes = {1, 4, 24}, .tokens = {512, 256, 40}, .pages_spare = 32});
  std::vector<PageTableStorage> steps;
  for (uint32_t step = 0; step < 1000; ++step) {
    const uint32_t members = step % 50 < 25 ? 20 + step % 2 : 20;  // M, M + 1, M, ... and steady stretches
    std::vector<SequencePages> some(all.begin(), all.begin() + members);
    for (SequencePages& sequence : some) sequence.kv_len += step;
    steps.emplace_back(32, some);
  }
  auto planner = Planner::create(testing::limits_for(all, 32), {}, {}, {.workers = 8, .kv_heads = 2});
  ASSERT_TRUE(planner);
  const uint64_t before = allocations;
  uint32_t incremental = 0;
  for (const PageTableStorage& step : steps) incremental += (*planner->plan(step.view()))->outcome.incremental;
  EXPECT_EQ(allocations, before);
  EXPECT_GT(incremental, 400u);
}

}  // namespace
}  // namespace headwater::attention
