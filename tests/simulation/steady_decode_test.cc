// The promise of the engine's door: between inbox and outbox a steady decode step allocates nothing. Every allocation
// of the process is counted, on all threads, by standing in for the C library's allocator.
#include "simulation/engine_under_test.h"
#include "support/allocation_counter.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kPageSize = 32;
constexpr uint32_t kSequences = 8;
constexpr uint32_t kSteps = 1000;

uint32_t pages_in_tree(const kv::PagedCache& cache) {  // of the sequences in slots [0, kSequences)
  uint32_t count = 0;
  for (kv::SequenceSlot slot = 0; slot < kSequences; ++slot) {
    for (const PageId page : cache.pages(slot)) count += cache.reference_count(page) == 2;  // the sequence and the tree
  }
  return count;
}

void expect_no_allocation(const std::vector<uint32_t>& windows) {
  EngineUnderTest test(small_config(kPageSize), 600, 2048, windows);
  const std::vector<TokenId> preamble = random_tokens(100, 1);
  std::vector<engine::RequestId> ids;
  for (uint32_t i = 0; i < kSequences; ++i) {
    ids.push_back(test.submit(make_request(joined(preamble, random_tokens(7, 100 + i)), kSteps + 100)));
  }
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(test.step());
  test.collect();
  const uint64_t pages_before = test.engine->cache().counters().pages_allocated;
  const uint32_t published_before = pages_in_tree(test.engine->cache());
  const uint64_t ahead_before = test.late_backend.steps_begun_ahead();

  std::array<engine::Emission, kSequences> emissions;
  uint64_t emitted = 0;
  const uint64_t allocations_before = allocations();
  bool all_well = true;
  for (uint32_t i = 0; i < kSteps; ++i) {
    const Result<bool> stepped = test.engine->step();
    all_well = all_well && stepped && *stepped;
    emitted += test.engine->poll_any(emissions);
  }
  const uint64_t allocations_after = allocations();

  EXPECT_EQ(allocations_after - allocations_before, 0u);
  EXPECT_TRUE(all_well);
  EXPECT_EQ(test.late_backend.steps_begun_ahead() - ahead_before, tests_run_ahead ? kSteps : 0);
  EXPECT_EQ(emitted, uint64_t{kSequences} * kSteps);
  EXPECT_GE(test.engine->cache().counters().pages_allocated - pages_before, uint64_t{31} * kSequences);
  EXPECT_GE(pages_in_tree(test.engine->cache()) - published_before, 31 * kSequences);
  EXPECT_GE(test.engine->metrics().attention_steps[static_cast<size_t>(attention::Path::kShared)].value(), kSteps);
}

TEST(SteadyDecode, AllocatesNothingAcrossPagesAndPublishing) {
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer owns the allocator";
  expect_no_allocation({0});
}

TEST(SteadyDecode, AllocatesNothingWithAPlanForEachOfTwoWindows) {
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer owns the allocator";
  expect_no_allocation({100, 0});
}

TEST(SteadyDecode, CountsTheAllocationsItIsBlindToOtherwise) {
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer owns the allocator";
  const uint64_t before = allocations();
  const auto number = std::make_unique<volatile int>(1);
  EXPECT_EQ(allocations() - before, uint64_t{1}) << *number;
}

}  // namespace
}  // namespace headwater::testing
