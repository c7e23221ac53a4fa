#include "backend/cpu/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headwater::backend::cpu {
namespace {

TEST(Targets, ScalarRunsEverywhereAndIsTheFirst) {
  EXPECT_EQ(all_targets().front(), Target::kScalar);
  EXPECT_TRUE(is_available(Target::kScalar));
  EXPECT_EQ(*choose_target("scalar"), Target::kScalar);
}

TEST(Targets, NoNameMeansTheLastAvailableOne) {
  const Target best = *choose_target("");
  EXPECT_TRUE(is_available(best));
  for (const Target target : all_targets()) EXPECT_TRUE(!is_available(target) || target <= best) << to_string(target);
}

TEST(Targets, UnknownNamesListWhatTheProcessorHas) {
  const Status status = choose_target("avx3").status();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::StartsWith("unknown CPU target 'avx3'; this processor has scalar"));
}

TEST(Targets, NamesChooseTheirTargetOrSayThatItIsMissing) {
  for (const Target target : all_targets()) {
    const Result<Target> chosen = choose_target(to_string(target));
    if (is_available(target)) {
      EXPECT_EQ(*chosen, target);
    } else {
      EXPECT_EQ(chosen.status().code(), ErrorCode::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace headwater::backend::cpu
