// The first guarantee on a GPU that promises it (--sharing-invariant): equal answers, to the last bit of every log
// probability, under random schedules.
#include <gtest/gtest.h>

#include "engine/schedules.h"

namespace headwater::testing {
namespace {

struct Cuda {
  static constexpr const char* kName = "cuda";
};
using RealModelOnCuda = RealModelSchedules<Cuda>;

TEST_F(RealModelOnCuda, TwoHundredRandomSchedulesGiveTheSameBits) {
  if (loaded_ == nullptr) GTEST_SKIP() << "no CUDA device";
  ASSERT_EQ(expected_.size(), 17u);
  constexpr uint64_t kSeed = 1;
  Random random(kSeed);
  uint64_t shared_steps = 0;
  for (uint32_t i = 0; i < 200 && !HasFailure(); ++i) {
    constexpr Sharing kSharing[] = {Sharing::kOff, Sharing::kAuto, Sharing::kAlways};
    const Schedule schedule{.step_tokens = random.between(16, 512),
                            .batch = random.between(1, 17),
                            .sharing = kSharing[random.below(3)],
                            .prefix_cache = random.below(4) > 0,
                            .pages = random.between(24, 240),
                            .run_ahead = random.below(3) > 0};
    SCOPED_TRACE(fmt::format("seed {}, schedule {}: {}", kSeed, i, schedule.name()));
    expect_the_same_answers(answers(schedule, [&](const engine::EngineMetrics& metrics) {
      shared_steps +=
          metrics.steps.value() - metrics.attention_steps[static_cast<size_t>(attention::Path::kFlat)].value();
    }));
  }
  EXPECT_GT(shared_steps, 100u);
}

TEST_F(RealModelOnCuda, BitsDoNotDependOnPreemption) {
  if (loaded_ == nullptr) GTEST_SKIP() << "no CUDA device";
  for (const bool run_ahead : {true, false}) {
    expect_the_same_answers_when_preempted({.step_tokens = 64, .batch = 5, .run_ahead = run_ahead});
  }
}

// Steps of every size come and go: what the first round recorded, chose and allocated serves the later ones.
TEST_F(RealModelOnCuda, ABatchThatGrowsAndShrinksTakesNoMoreMemoryOfTheDevice) {
  if (loaded_ == nullptr) GTEST_SKIP() << "no CUDA device";
  engine::EngineConfig config;
  config.context_max = 768;
  config.sequences_max = 16;
  config.kv_bytes = kv_bytes_of(*loaded_, 400);
  const Result<RealEngine> real = create_real_engine(*loaded_, config);
  ASSERT_TRUE(real) << real.status().message();
  uint64_t free_after_first = 0;
  for (uint32_t round = 0; round < 4; ++round) {
    for (const size_t count : {size_t{1}, size_t{15}, size_t{4}, size_t{9}}) {
      ASSERT_TRUE(answer_all(*real->engine, std::span(requests_).first(count)));
    }
    const uint64_t free = loaded_->backend->pool_memory().free;
    if (round == 0) free_after_first = free;
    EXPECT_EQ(free, free_after_first) << "round " << round;
  }
}

}  // namespace
}  // namespace headwater::testing
