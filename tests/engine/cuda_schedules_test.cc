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
  uint64_t shared_steps = 0, preemptions = 0;
  for (uint32_t i = 0; i < 200 && !HasFailure(); ++i) {
    constexpr Sharing kSharing[] = {Sharing::kOff, Sharing::kAuto, Sharing::kAlways};
    const Schedule schedule{.step_tokens = random.between(16, 512),
                            .batch = random.between(1, 17),
                            .sharing = kSharing[random.below(3)],
                            .prefix_cache = random.below(4) > 0,
                            .pages = random.between(24, 240)};
    SCOPED_TRACE(fmt::format("seed {}, schedule {}: {}", kSeed, i, schedule.name()));
    expect_the_same_answers(answers(schedule, [&](const engine::EngineMetrics& metrics) {
      shared_steps +=
          metrics.steps.value() - metrics.attention_steps[static_cast<size_t>(attention::Path::kFlat)].value();
      preemptions += metrics.preemptions.value();
    }));
  }
  EXPECT_GT(shared_steps, 100u);
  EXPECT_GT(preemptions, 0u);
}

}  // namespace
}  // namespace headwater::testing
