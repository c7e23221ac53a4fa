// Thousands of random schedules against the scripted model. Usage: [--schedules N] [--seed FIRST]; each schedule has
// its own seed, FIRST, FIRST + 1, ..., and a failing one is repeated with --schedules 1 --seed THAT.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "observe/log.h"
#include "simulation/schedule.h"

namespace headwater::testing {
namespace {

uint64_t schedules = 2000;
uint64_t seed_first = 1;

class Schedules : public ::testing::TestWithParam<bool> {};  // whether the back end runs ahead

TEST_P(Schedules, GiveEveryRequestItsOwnTextWhateverElseHappens) {
  std::array<uint64_t, kEvents> total{};
  std::array<uint64_t, kEvents> seen_in{};
  uint64_t steps = 0;
  uint64_t tokens = 0;
  for (uint64_t seed = seed_first; seed < seed_first + schedules; ++seed) {
    const ScheduleReport report = run_schedule(seed, GetParam());
    ASSERT_EQ(report.failure, "") << "seed " << seed;
    for (size_t event = 0; event < kEvents; ++event) {
      total[event] += report.events[event];
      seen_in[event] += report.events[event] > 0;
    }
    steps += report.steps;
    tokens += report.tokens;
  }
  std::printf("%llu schedules, %llu steps, %llu tokens\n", static_cast<unsigned long long>(schedules),
              static_cast<unsigned long long>(steps), static_cast<unsigned long long>(tokens));
  for (size_t event = 0; event < kEvents; ++event) {
    std::printf("  %-24s %9llu in %6llu schedules\n", kEventNames[event], static_cast<unsigned long long>(total[event]),
                static_cast<unsigned long long>(seen_in[event]));
    if (schedules < 100 || (event == kAhead && !GetParam())) continue;
    EXPECT_GE(seen_in[event] * 10, schedules) << kEventNames[event] << " are too rare to be tested";
  }
}

// Controls: a back end that is broken must not go unnoticed.
TEST_P(Schedules, CatchABrokenBackEnd) {
  for (const Fault fault : {Fault::kDropCopies, Fault::kDropAppends, Fault::kWrongPage, Fault::kDropPartial}) {
    uint32_t caught = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) caught += !run_schedule(seed, GetParam(), fault).failure.empty();
    EXPECT_GE(caught, 8u) << "fault " << static_cast<int>(fault);
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Schedules, ::testing::Bool(), [](const ::testing::TestParamInfo<bool>& ahead) {
  return ahead.param ? "that_run_ahead" : "that_do_not";
});

}  // namespace
}  // namespace headwater::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  headwater::observe::set_log_level("off");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--schedules") headwater::testing::schedules = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--seed") headwater::testing::seed_first = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return RUN_ALL_TESTS();
}
