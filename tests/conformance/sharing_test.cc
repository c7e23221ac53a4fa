// The planner's own plans on every back end: right answers whatever is shared, and, where the back end promises it, the
// same bits whatever is shared, whoever else is in the batch, and however often it is repeated.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>

#include "conformance/attention_case.h"
#include "conformance/random_plan.h"

namespace headwater::testing {
namespace {

using attention::Sharing;

std::vector<PageId> joined(std::vector<PageId> a, const std::vector<PageId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A system prompt, tenants behind it, conversations and four samples of one of them behind those, and two strangers.
Sequences tenants(uint32_t page_size, Random& random) {
  Sequences sequences(page_size, 400, random);
  const std::vector<PageId> system = sequences.new_pages(20);
  for (const uint32_t pages : {7u, 8u, 9u}) {
    const std::vector<PageId> tenant = joined(system, sequences.new_pages(pages));
    const auto behind = [&](uint32_t keys) { return static_cast<uint32_t>(tenant.size()) * page_size + keys; };
    for (uint32_t i = 0; i < 5; ++i) sequences.add(tenant, behind(random.between(1, 3 * page_size)));
    if (pages != 8) continue;
    const std::vector<PageId> question = joined(tenant, sequences.new_pages(4));
    for (uint32_t i = 0; i < 4; ++i) sequences.add(question, behind(4 * page_size + random.between(1, page_size)));
  }
  sequences.add({}, 5 * page_size + 3);
  sequences.add({}, 2);
  return sequences;
}

// Two prompts side by side, drafts under verification, a prompt being read, an empty sequence.
Sequences two_prompts(uint32_t page_size, Random& random) {
  Sequences sequences(page_size, 400, random);
  const std::vector<PageId> a = sequences.new_pages(16), b = sequences.new_pages(12);
  for (uint32_t i = 0; i < 9; ++i) sequences.add(a, 16 * page_size + random.between(1, 2 * page_size));
  for (uint32_t i = 0; i < 6; ++i) sequences.add(b, 12 * page_size + 4 + random.below(page_size), 4);
  sequences.add(a, 16 * page_size + 60, 60);
  sequences.add({}, 3 * page_size);
  sequences.add({}, 0, 0);
  return sequences;
}

struct Forest {
  const char* name;
  Sequences (*make)(uint32_t page_size, Random& random);
};
constexpr Forest kForests[] = {{"tenants", tenants}, {"two prompts", two_prompts}};
constexpr Sharing kSharings[] = {Sharing::kOff, Sharing::kAuto, Sharing::kAlways};

AttentionSetting setting_of(const Forest& forest, DType dtype, uint32_t page_size, uint32_t window) {
  return {.name = fmt::format("{}, {}, page {}, window {}", forest.name, to_string(dtype), page_size, window),
          .seed = page_size + window,
          .kv_heads = 2,
          .group = 3,
          .page_size = page_size,
          .pages = 400,
          .dtype = dtype,
          .window = window};
}

std::vector<uint32_t> all_of(const Sequences& sequences) {
  std::vector<uint32_t> order(sequences.table().sequences());
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

void shuffle(std::vector<uint32_t>& order, Random& random) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<uint32_t>(i))]);
}

class SharedPlans : public TargetTest {
 protected:
  AttentionResult run(AttentionRig& rig, const AttentionSetting& setting, const Sequences& sequences, Sharing sharing,
                      attention::Outcome* outcome = nullptr, uint32_t cut = 64) {
    attention::Planner planner = make_planner(*backend_, setting, sequences, sharing, cut, backend_->info().invariant);
    Result<const attention::Plan*> plan = planner.plan(sequences.table());
    EXPECT_TRUE(plan) << plan.status().message();
    if (outcome != nullptr) *outcome = (*plan)->outcome;
    return rig.run(sequences, **plan);
  }

  void for_each_case(const std::function<void(const AttentionSetting&, const Sequences&)>& body) {
    for (const Forest& forest : kForests) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
        for (const uint32_t page_size : {16u, 32u}) {
          Random random(page_size);
          const uint32_t window = dtype == DType::kF16 ? 300 : 0;
          const AttentionSetting setting = setting_of(forest, dtype, page_size, window);
          const bool is_wanted = page_size == 16 || (kSlowdown == 1 && dtype == DType::kBF16);
          if (is_wanted && takes(setting.kv_shape())) body(setting, forest.make(page_size, random));
        }
      }
    }
  }
};

class InvariantSharing : public SharedPlans {
 protected:
  void SetUp() override {
    SharedPlans::SetUp();
    if (backend_ != nullptr && !backend_->info().invariant)
      GTEST_SKIP() << "this back end promises tolerances, not bits";
  }

  // Every sequence of `batch`, sequences[order[r]], has the bits that it has in `whole`.
  static void expect_same_rows(const AttentionResult& result, const Sequences& batch, const AttentionResult& whole,
                               const Sequences& sequences, const std::vector<uint32_t>& order,
                               const AttentionSetting& setting) {
    const attention::PageTable got = batch.table(), want = sequences.table();
    const size_t columns = whole.out.size() / want.tokens();
    for (uint32_t r = 0; r < order.size(); ++r) {
      const uint32_t q_len = want.q_indptr[order[r] + 1] - want.q_indptr[order[r]];
      const auto rows = [&](const std::vector<float>& out, uint32_t token) {
        const auto begin = out.begin() + static_cast<ptrdiff_t>(token * columns);
        return std::vector<float>(begin, begin + static_cast<ptrdiff_t>(q_len * columns));
      };
      EXPECT_TRUE(same_bits(rows(result.out, got.q_indptr[r]), rows(whole.out, want.q_indptr[order[r]]), setting.seed,
                            fmt::format("{}, sequence {} in a batch of {}", setting.name, order[r], order.size())));
    }
  }
};

TEST_P(SharedPlans, ConformWhateverIsShared) {
  for_each_case([&](const AttentionSetting& setting, const Sequences& sequences) {
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    const NaiveAttention::Output expected = data.expected(sequences);
    for (const Sharing sharing : kSharings) {
      EXPECT_TRUE(data.matches(run(rig, setting, sequences, sharing), expected)) << to_string(sharing);
    }
    attention::Planner adaptive = make_planner(*backend_, setting, sequences, Sharing::kAlways, 64, false);
    Result<const attention::Plan*> plan = adaptive.plan(sequences.table());
    ASSERT_TRUE(plan) << plan.status().message();
    EXPECT_TRUE(data.matches(rig.run(sequences, **plan), expected)) << "cut freely";
  });
}

TEST_P(SharedPlans, SharingTakesTheSharedPathAndReadsFewerBytes) {
  Random random(3);
  const AttentionSetting setting = setting_of(kForests[0], DType::kBF16, 16, 0);
  if (!takes(setting.kv_shape())) return;
  const Sequences sequences = tenants(16, random);
  const AttentionCase data(setting, sequences);
  AttentionRig rig(*backend_, data);
  attention::Outcome off, always;
  (void)backend_->take_kv_bytes_read();
  (void)run(rig, setting, sequences, Sharing::kOff, &off);
  const uint64_t bytes_off = backend_->take_kv_bytes_read();
  (void)run(rig, setting, sequences, Sharing::kAlways, &always);
  const uint64_t bytes_always = backend_->take_kv_bytes_read();
  EXPECT_EQ(off.path, attention::Path::kFlat);
  EXPECT_EQ(always.path, attention::Path::kMixed);
  EXPECT_LT(always.bytes_read, off.bytes_read / 3);
#ifdef NDEBUG
  const bool is_counting = is_reference();
#else
  const bool is_counting = true;
#endif
  EXPECT_EQ(bytes_off, is_counting ? off.bytes_read : 0);
  EXPECT_EQ(bytes_always, is_counting ? always.bytes_read : 0);
}

TEST_P(InvariantSharing, GivesTheSameBitsWhateverIsShared) {
  for_each_case([&](const AttentionSetting& setting, const Sequences& sequences) {
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    const AttentionResult flat = run(rig, setting, sequences, Sharing::kOff);
    for (const Sharing sharing : {Sharing::kAuto, Sharing::kAlways}) {
      const AttentionResult shared = run(rig, setting, sequences, sharing);
      EXPECT_TRUE(same_bits(shared.out, flat.out, setting.seed, setting.name)) << to_string(sharing);
      EXPECT_TRUE(same_bits(shared.lse2, flat.lse2, setting.seed, setting.name)) << to_string(sharing);
    }
    Random random(setting.seed);
    for (uint32_t i = 0; i < 4; ++i) {  // and under any plan of whole cuts
      PlanBuilder builder =
          random_plan(sequences.table(), {.cut = 64, .window = setting.window, .whole_cuts = true}, random);
      EXPECT_TRUE(same_bits(rig.run(sequences, builder.plan()).out, flat.out, setting.seed, setting.name))
          << "plan " << i;
    }
  });
}

TEST_P(InvariantSharing, GivesASequenceTheSameBitsInAnyBatchAndOrder) {
  for_each_case([&](const AttentionSetting& setting, const Sequences& sequences) {
    if (setting.page_size != 16) return;
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    const AttentionResult expected = run(rig, setting, sequences, Sharing::kAlways);
    Random random(setting.seed);
    for (uint32_t i = 0; i < 8; ++i) {
      std::vector<uint32_t> order = all_of(sequences);
      shuffle(order, random);
      if (i > 1) order.resize(random.between(1, static_cast<uint32_t>(order.size())));
      const Sequences batch = sequences.reordered(order);
      expect_same_rows(run(rig, setting, batch, kSharings[i % 3]), batch, expected, sequences, order, setting);
    }
  });
}

TEST_P(InvariantSharing, GivesTheSameBitsInRandomForestsWhateverIsSharedAndInAnyOrder) {
  const std::array dtypes{DType::kF32, DType::kF16, DType::kBF16};
  const uint32_t forests = (is_reference() ? 20 : 200) / kSlowdown;
  uint32_t taken = 0, shared = 0;
  for (uint32_t i = 0; i < forests; ++i) {
    Random random(7000 + i);
    const uint32_t page_size = random.below(2) == 0 ? 16 : 32;
    const Sequences sequences(
        page_size, make_random_forest(random, {.sequences = random.between(2, 8), .page_size = page_size}), random);
    const AttentionSetting setting{.name = fmt::format("forest {}", i),
                                   .seed = 7000 + i,
                                   .layers = 1,
                                   .kv_heads = random.between(1, 2),
                                   .group = random.between(1, 4),
                                   .head_dim = random.below(2) == 0 ? 64u : 128u,
                                   .page_size = page_size,
                                   .pages = sequences.pages(),
                                   .dtype = dtypes[i % 3],
                                   .window = random.below(4) == 0 ? random.between(1, 200) : 0,
                                   .has_sinks = random.below(4) == 0};
    if (!takes(setting.kv_shape())) continue;
    ++taken;
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    const uint32_t cut = page_size * random.between(1, 3);
    const AttentionResult flat = run(rig, setting, sequences, Sharing::kOff, nullptr, cut);
    std::vector<uint32_t> order = all_of(sequences);
    for (const Sharing sharing : kSharings) {
      shuffle(order, random);
      const Sequences batch = sequences.reordered(order);
      attention::Outcome outcome;
      expect_same_rows(run(rig, setting, batch, sharing, &outcome, cut), batch, flat, sequences, order, setting);
      if (sharing == Sharing::kAlways) shared += outcome.path != attention::Path::kFlat;
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GE(shared, taken / 2);
}

TEST_P(InvariantSharing, GivesTheSameBitsAHundredTimes) {
  Random random(5);
  const AttentionSetting setting = setting_of(kForests[0], DType::kBF16, 16, 0);
  if (!takes(setting.kv_shape())) return;
  const Sequences sequences = tenants(16, random);
  const AttentionCase data(setting, sequences);
  AttentionRig rig(*backend_, data);
  const AttentionResult first = run(rig, setting, sequences, Sharing::kAlways);
  for (uint32_t i = 1; i < (is_reference() ? 5 : 100 / kSlowdown); ++i) {
    const AttentionResult again = run(rig, setting, sequences, Sharing::kAlways);
    ASSERT_TRUE(same_bits(again.out, first.out, setting.seed)) << "run " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SharedPlans, ::testing::ValuesIn(all_targets()), target_name);
INSTANTIATE_TEST_SUITE_P(Targets, InvariantSharing, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace headwater::testing
