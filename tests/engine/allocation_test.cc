// A steady decode step of the default model on the cpu back end allocates nothing, on no thread: not in the engine, the
// planner, the decoder or the kernels.
#include <gtest/gtest.h>

#include <array>

#include "engine/real_engine.h"
#include "support/allocation_counter.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kSequences = 6;
constexpr uint32_t kSteps = 1000;
constexpr uint32_t kPagesCrossed = kSteps / kv::kPageSizeDefault;  // by each sequence

uint32_t pages_in_tree(const kv::PagedCache& cache) {  // of the sequences in slots [0, kSequences)
  uint32_t count = 0;
  for (kv::SequenceSlot slot = 0; slot < kSequences; ++slot) {
    for (const PageId page : cache.pages(slot)) count += cache.reference_count(page) >= 2;  // a sequence and the tree
  }
  return count;
}

// Greedy and seeded requests behind one text of 512 tokens, which answer for longer than the test looks.
void submit_all(engine::Engine& engine, const English& english) {
  for (uint32_t i = 0; i < kSequences; ++i) {
    engine::Request request;
    request.prompt = english.prompt(english.piece(0, 512), 512 + 40 * i, 7 + i);
    request.sampling.tokens_max = kSteps + 100;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = i;
    request.sampling.top_p = 0.9f;
    request.sampling.want_logprobs = true;
    request.sampling.top_logprobs = 2;
    const Result<engine::RequestId> id = engine.submit(std::move(request));
    ASSERT_TRUE(id) << id.status().message();
  }
}

TEST(RealModelDecode, AllocatesNothingAcrossPagesAndPublishing) {
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer owns the allocator";
  Result<LoadedModel> loaded = load_default_model("cpu");
  ASSERT_TRUE(loaded) << loaded.status().message();
  const Result<English> english = English::read();
  ASSERT_TRUE(english) << english.status().message();
  engine::EngineConfig config;
  config.context_max = 2048;
  config.sequences_max = 8;
  config.step_tokens_max = 256;
  config.kv_bytes = kv_bytes_of(*loaded, 400);
  config.attention.sharing = attention::Sharing::kAlways;  // whatever it costs on this processor
  const Result<RealEngine> real = create_real_engine(*loaded, config);
  ASSERT_TRUE(real) << real.status().message();
  engine::Engine& engine = *real->engine;
  submit_all(engine, *english);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(engine.step());
  std::array<engine::Emission, kSequences> emissions;
  while (engine.poll_any(emissions) > 0) continue;

  const uint64_t pages_before = engine.cache().counters().pages_allocated;
  const uint32_t published_before = pages_in_tree(engine.cache());
  const auto& shared_steps = engine.metrics().attention_steps[static_cast<size_t>(attention::Path::kShared)];
  const uint64_t shared_before = shared_steps.value();
  uint64_t emitted = 0;
  bool all_well = true;
  const uint64_t allocations_before = allocations();
  for (uint32_t i = 0; i < kSteps; ++i) {
    const Result<bool> stepped = engine.step();
    all_well = all_well && stepped && *stepped;
    emitted += engine.poll_any(emissions);
  }
  const uint64_t allocations_after = allocations();

  EXPECT_EQ(allocations_after - allocations_before, 0u);
  EXPECT_TRUE(all_well);
  EXPECT_EQ(emitted, uint64_t{kSequences} * kSteps);
  EXPECT_GE(engine.cache().counters().pages_allocated - pages_before, uint64_t{kPagesCrossed} * kSequences);
  EXPECT_GE(pages_in_tree(engine.cache()) - published_before, kPagesCrossed * kSequences);
  EXPECT_EQ(shared_steps.value() - shared_before, kSteps);
}

TEST(RealModelDecode, IsWatchedByACounterThatSeesTheHeapAndMappings) {
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer owns the allocator";
  uint64_t before = allocations();
  const auto number = std::make_unique<volatile int>(1);
  EXPECT_EQ(allocations() - before, uint64_t{1}) << *number;
  before = allocations();
  const Result<Buffer> buffer = Buffer::create(16u << 20);
  EXPECT_TRUE(buffer);
  EXPECT_GE(allocations() - before, 1u);
}

}  // namespace
}  // namespace headwater::testing
