// Cases that went wrong in other engines, as plans.
#include <gtest/gtest.h>

#include <set>

#include "attention/attention.h"
#include "support/forest.h"
#include "support/plan_audit.h"

namespace headwater::attention {
namespace {

using testing::make_tree;
using testing::PageTableStorage;
using testing::PlanAudit;
using testing::SequencePages;

// Reads dominate: whatever is shared by enough members pays.
constexpr CostModel kReadBound{
    .item = 50, .key_first = 8, .key_repeat = 4, .rows_tile = 64, .key_tile = 1, .row = 1, .partial = 2};

struct Planned {
  Outcome outcome;
  std::vector<WorkItem> items;
  std::vector<uint32_t> merge_slots;
  uint32_t keys_new;
  uint32_t count(NotShared reason) const { return outcome.not_shared[static_cast<size_t>(reason)]; }
  size_t direct() const {
    return static_cast<size_t>(std::ranges::count_if(items, [](const WorkItem& i) { return i.flags & kDirect; }));
  }
};

Planned plan_of(const std::vector<SequencePages>& sequences, uint32_t page_size, const PlanSettings& settings,
                const CostModel& cost = kReadBound, const DeviceShape& device = {}) {
  const PageTableStorage storage(page_size, sequences);
  const PageTable table = storage.view();
  auto planner = Planner::create(testing::limits_for(sequences, page_size, 16384 / page_size), settings, cost, device);
  EXPECT_TRUE(planner) << planner.status().message();
  auto plan = planner->plan(table);
  EXPECT_TRUE(plan) << plan.status().message();
  EXPECT_EQ(PlanAudit(**plan, table, *planner, device.tokens_item_max).run(), "");
  return {(*plan)->outcome,
          {(*plan)->items.begin(), (*plan)->items.end()},
          {(*plan)->merge_slots.begin(), (*plan)->merge_slots.end()},
          (*plan)->keys_new};
}

std::vector<SequencePages> joined(std::vector<SequencePages> a, const std::vector<SequencePages>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Planner, SaysHowManyKeysOfASequenceAreNew) {
  std::vector<SequencePages> sequences = make_tree({.nodes = {3}, .tokens = {700}});
  EXPECT_EQ(plan_of(sequences, 32, {}).keys_new, 1u);
  sequences[1].q_len = 40;
  sequences[2].q_len = 7;
  EXPECT_EQ(plan_of(sequences, 32, {}).keys_new, 40u);
}

TEST(Planner, PlainDecodeIsOneDirectItemASequence) {
  const Planned planned = plan_of(make_tree({.nodes = {5}, .tokens = {700}}), 32, {}, {}, {.kv_bytes_token = 10});
  EXPECT_EQ(planned.outcome.path, Path::kFlat);
  EXPECT_EQ(planned.outcome.reason(), NotShared::kNothingShared);
  EXPECT_EQ(planned.items.size(), 5u);
  EXPECT_EQ(planned.direct(), 5u);
  EXPECT_TRUE(planned.merge_slots.empty());
  EXPECT_EQ(planned.outcome.bytes_read, 35000u);
  EXPECT_EQ(planned.outcome.bytes_unique, 35000u);
}

TEST(Planner, ASharedPromptIsReadOnceForAllMembers) {
  const Planned planned =
      plan_of(make_tree({.nodes = {1, 8}, .tokens = {1024, 40}}), 32, {}, kReadBound, {.kv_bytes_token = 10});
  const Outcome& outcome = planned.outcome;
  EXPECT_EQ(outcome.path, Path::kShared);
  EXPECT_EQ(outcome.roots, 1u);
  EXPECT_EQ(outcome.groups, 1u);
  EXPECT_EQ(outcome.depth, 1u);
  EXPECT_EQ(outcome.members, 8u);
  EXPECT_EQ(outcome.members_total, 8u);
  EXPECT_EQ(outcome.shared_pages, 32u);
  EXPECT_EQ(outcome.tokens_saved, 1024u * 7);
  EXPECT_EQ(outcome.items, 9u);
  EXPECT_EQ(outcome.splits, 0u);
  EXPECT_EQ(outcome.bytes_flat, 10u * 8 * 1064);
  EXPECT_EQ(outcome.bytes_read, 10u * (1024 + 8 * 40));
  EXPECT_EQ(outcome.bytes_unique, outcome.bytes_read);
  EXPECT_EQ(planned.items[0].flags, kFold);  // longest first
  EXPECT_EQ(planned.items[0].key_count, 1024u);
}

TEST(Planner, LengthsAroundAPageMixInOneBatch) {
  for (uint32_t size : {2u, 16u}) {
    std::vector<SequencePages> sequences;
    PageId next = 0;
    for (uint32_t kv_len : {1u, size - 1, size, size + 1, 2 * size, size, 1u}) {
      SequencePages sequence{.kv_len = kv_len};
      for (uint32_t i = 0; i * size < kv_len; ++i) sequence.pages.push_back(next++);
      sequences.push_back(sequence);
    }
    EXPECT_EQ(plan_of(sequences, size, {.sharing = Sharing::kAlways, .cut = size}).direct(), sequences.size());
  }
}

TEST(Planner, PaddedRowsHaveNoWorkAndAreMarkedEmpty) {
  auto sequences = make_tree({.nodes = {1, 24}, .tokens = {512, 40}});
  sequences.insert(sequences.begin() + 3, SequencePages{.kv_len = 0, .q_len = 1});
  while (sequences.size() < 32) sequences.push_back({.kv_len = 0, .q_len = sequences.size() % 2 ? 1u : 0u});
  const Planned planned = plan_of(sequences, 32, {});
  EXPECT_EQ(planned.outcome.path, Path::kShared);  // padding is no member and no outsider
  EXPECT_EQ(planned.outcome.members_total, 24u);
  EXPECT_EQ(plan_of({{.kv_len = 0, .q_len = 1}}, 32, {}).items.size(), 0u);
  EXPECT_EQ(plan_of({}, 32, {}).items.size(), 0u);
}

TEST(Planner, GroupsFollowTheTableWhenMembersLeave) {
  const auto first = make_tree({.nodes = {1, 8}, .tokens = {512, 40}});
  const auto second = make_tree({.nodes = {1, 7}, .tokens = {512, 40}, .first_page = 5000});
  const std::vector<SequencePages> outsider{first[0]};
  const Planned before = plan_of(first, 32, {});
  EXPECT_EQ(before.outcome.members, 8u);
  const Planned after = plan_of(joined(outsider, second), 32, {});
  EXPECT_EQ(after.outcome.path, Path::kMixed);
  EXPECT_EQ(after.outcome.members, 7u);
  EXPECT_EQ(after.outcome.roots, 1u);
}

TEST(Planner, ASharedRunStopsWhereAMemberIsStillComputing) {
  // Both list pages A..H; the second computes from the middle of its fifth page on.
  SequencePages done{.pages = {1, 2, 3, 4, 5, 6, 7, 8, 9}, .kv_len = 280};
  SequencePages computing{.pages = {1, 2, 3, 4, 5, 6, 7, 8, 10}, .kv_len = 170, .q_len = 30};
  const PlanSettings settings{.sharing = Sharing::kAlways, .cut = 32};
  const Planned planned = plan_of({done, computing}, 32, settings, kReadBound, {.kv_bytes_token = 1});
  EXPECT_EQ(planned.outcome.shared_pages, 4u);
  EXPECT_EQ(planned.count(NotShared::kUncomputed), 1u);
  EXPECT_EQ(planned.outcome.bytes_unique, 280u);
}

TEST(Planner, EachMemberKeepsALastPageOfItsOwn) {
  const SequencePages sequence{.pages = {1, 2, 3}, .kv_len = 96};
  const Planned planned = plan_of({sequence, sequence, sequence}, 32, {.sharing = Sharing::kAlways, .cut = 32},
                                  kReadBound, {.kv_bytes_token = 1});
  EXPECT_EQ(planned.outcome.shared_pages, 2u);
  EXPECT_EQ(planned.count(NotShared::kLastPage), 1u);
  EXPECT_EQ(planned.outcome.bytes_unique, 96u);
  EXPECT_EQ(planned.outcome.bytes_read, 64u + 3 * 32);
}

TEST(Planner, TwoPromptsInOneStepAreTwoGroupsAndAnOutsiderSwitchesNeitherOff) {
  const auto a = make_tree({.nodes = {1, 32}, .tokens = {1024, 40}});
  const auto b = make_tree({.nodes = {1, 18}, .tokens = {512, 40}, .first_page = 100000});
  const Planned both = plan_of(joined(a, b), 32, {});
  EXPECT_EQ(both.outcome.path, Path::kShared);
  EXPECT_EQ(both.outcome.roots, 2u);
  EXPECT_EQ(both.outcome.members, 32u);
  EXPECT_EQ(both.outcome.members_total, 50u);
  auto mixed = joined(a, make_tree({.nodes = {1}, .tokens = {300}, .first_page = 900000}));
  std::swap(mixed[5], mixed.back());
  mixed = joined(mixed, b);
  const Planned with_outsider = plan_of(mixed, 32, {});
  EXPECT_EQ(with_outsider.outcome.path, Path::kMixed);
  EXPECT_EQ(with_outsider.outcome.roots, 2u);
  EXPECT_EQ(with_outsider.outcome.members_total, 50u);
}

TEST(Planner, AWindowDropsTheCutsThatNoMemberSees) {
  auto sequences = make_tree({.nodes = {1, 6}, .tokens = {2048, 64}, .pages_spare = 16});
  for (uint32_t r = 0; r < 6; ++r)
    sequences[r].kv_len += 37 * r;  // window starts on different keys, also inside a page
  const Planned planned = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .window = 512});
  // The first member's first visible key is 2112 - 512 = 1600, in the cut that begins at 1536.
  EXPECT_EQ(planned.outcome.shared_pages, (2048u - 1536) / 32);
  const Planned none = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .window = 16});
  EXPECT_EQ(none.outcome.path, Path::kFlat);
  EXPECT_EQ(none.count(NotShared::kWindow), 1u);
}

TEST(Planner, DraftVerificationHasACausalTailAndASharedRunWithout) {
  auto sequences = make_tree({.nodes = {1, 8}, .tokens = {1024, 40}, .q_len = 4});
  for (uint32_t r = 0; r < 8; ++r) sequences[r].q_len = std::array{1u, 4u, 1u, 7u}[r % 4];
  const Planned planned = plan_of(sequences, 32, {});
  EXPECT_EQ(planned.outcome.path, Path::kShared);
  EXPECT_EQ(planned.items[0].token_count, 26u);
}

TEST(Planner, CutsMayBeLongerThanASequenceOrOnePage) {
  const auto sequences = make_tree({.nodes = {1, 8}, .tokens = {96, 40}});
  const Planned longer = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 4096});
  EXPECT_EQ(longer.outcome.path, Path::kFlat);
  EXPECT_EQ(longer.outcome.reason(), NotShared::kPartialCut);
  EXPECT_EQ(plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32}).outcome.shared_pages, 3u);
  EXPECT_EQ(plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 33}).outcome.shared_pages, 2u);  // 64
  const auto one_key = make_tree({.nodes = {1, 3}, .tokens = {5, 4}, .page_size = 1});
  EXPECT_EQ(plan_of(one_key, 1, {.sharing = Sharing::kAlways, .cut = 1}).outcome.shared_pages, 5u);
}

TEST(Planner, ARunThatFillsNoCutIsLeftToTheMembers) {
  const auto sequences = make_tree({.nodes = {1, 8}, .tokens = {512 + 96, 40}});
  const Planned invariant = plan_of(sequences, 32, {});
  EXPECT_EQ(invariant.outcome.shared_pages, 16u);
  EXPECT_EQ(invariant.count(NotShared::kPartialCut), 1u);
  EXPECT_EQ(plan_of(sequences, 32, {.invariant = false}).outcome.shared_pages, 19u);
}

TEST(Planner, RunsOfAnyLengthAndGroupsOfAnySizeAreFound) {
  for (uint32_t pages : {1u, 15u, 16u, 1000u}) {
    for (uint32_t members : {2u, 3u, 255u, 256u}) {
      const auto sequences = make_tree({.nodes = {1, members}, .tokens = {pages * 32, 40}});
      const Planned planned = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32});
      EXPECT_EQ(planned.outcome.shared_pages, pages);
      EXPECT_EQ(planned.outcome.members, members);
      EXPECT_EQ(planned.outcome.tokens_saved, uint64_t{pages} * 32 * (members - 1));
    }
  }
}

// One system prompt, three tenants, conversations under them, four samples of one conversation, and two strangers.
std::vector<SequencePages> nested_batch() {
  std::vector<SequencePages> sequences;
  PageId next = 100;
  const auto extend = [&](SequencePages from, uint32_t pages) {
    for (uint32_t i = 0; i < pages; ++i) from.pages.push_back(next++);
    from.kv_len = static_cast<uint32_t>(from.pages.size()) * 32 - 5;
    return from;
  };
  const SequencePages prompt = extend({}, 40);
  for (uint32_t pages : {7u, 8u, 9u}) {
    const SequencePages tenant = extend(prompt, pages);
    for (uint32_t i = 0; i < 5; ++i) sequences.push_back(extend(tenant, 3));
  }
  for (uint32_t i = 0; i < 3; ++i) sequences.push_back(extend(sequences[2], 1));
  sequences[2] = extend(sequences[2], 1);
  sequences.push_back(extend({}, 12));
  sequences.insert(sequences.begin(), extend({}, 20));
  return sequences;
}

TEST(Planner, NestedPrefixesAreNestedNodes) {
  const Planned planned = plan_of(nested_batch(), 32, {.sharing = Sharing::kAlways, .cut = 32});
  EXPECT_EQ(planned.outcome.path, Path::kMixed);
  EXPECT_EQ(planned.outcome.roots, 1u);
  EXPECT_EQ(planned.outcome.groups, 5u);  // prompt, three tenants, the sampled conversation
  EXPECT_EQ(planned.outcome.depth, 3u);
  EXPECT_EQ(planned.outcome.members, 18u);
  EXPECT_EQ(planned.outcome.shared_pages, 40u + 7 + 8 + 9 + 3);
}

// Sequence i leaves a chain of 24 pages at page i + 1: deeper than the ancestors that the decision considers.
TEST(Planner, AChainDeeperThanTheAncestorsConsideredIsStillPlanned) {
  std::vector<SequencePages> sequences;
  for (uint32_t i = 0; i < 25; ++i) {
    SequencePages sequence{.kv_len = (i + 2) * 32 - 3};
    for (uint32_t page = 0; page <= i; ++page) sequence.pages.push_back(page);
    sequence.pages.push_back(1000 + i);
    sequences.push_back(sequence);
  }
  const Planned always = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32});
  EXPECT_EQ(always.outcome.groups, 24u);
  EXPECT_EQ(always.outcome.depth, 24u);
  const Planned chosen = plan_of(sequences, 32, {.cut = 32}, {.item = 1000, .rows_tile = 64, .key_tile = 1, .row = 1});
  EXPECT_GT(chosen.outcome.groups, 0u);
  EXPECT_LT(chosen.outcome.groups, 24u);
}

TEST(Planner, OffPushesEverythingDownAndChangesNothingElse) {
  const Planned off = plan_of(nested_batch(), 32, {.sharing = Sharing::kOff, .cut = 32});
  EXPECT_EQ(off.outcome.path, Path::kFlat);
  EXPECT_EQ(off.outcome.reason(), NotShared::kOff);
  EXPECT_EQ(off.count(NotShared::kOff), 5u);
  EXPECT_EQ(off.direct(), nested_batch().size());
}

TEST(Planner, ASharedPageOfTwoMembersCostsMoreThanItSaves) {
  const auto sequences = make_tree({.nodes = {1, 2}, .tokens = {32, 40}});
  const Planned planned = plan_of(sequences, 32, {.cut = 32}, CostModel{});
  EXPECT_EQ(planned.outcome.path, Path::kFlat);
  EXPECT_EQ(planned.outcome.reason(), NotShared::kBelowCost);
}

TEST(Planner, InnerNodesThatCostMoreThanTheySaveArePushedIntoTheirMembers) {
  const auto sequences = make_tree({.nodes = {1, 4, 8}, .tokens = {1024, 32, 40}});  // pairs behind one page each
  CostModel cost = kReadBound;
  const Planned cheap = plan_of(sequences, 32, {.cut = 32}, cost);
  EXPECT_EQ(cheap.outcome.groups, 5u);
  EXPECT_EQ(cheap.outcome.depth, 2u);
  cost.item = 5000;
  const Planned dear = plan_of(sequences, 32, {.cut = 32}, cost);
  EXPECT_EQ(dear.outcome.path, Path::kShared);
  EXPECT_EQ(dear.outcome.groups, 1u);
  EXPECT_EQ(dear.outcome.members, 8u);
  EXPECT_EQ(dear.outcome.shared_pages, 32u);
  EXPECT_EQ(dear.count(NotShared::kBelowCost), 4u);
}

TEST(Planner, MinimumPagesAndMembersAreSettings) {
  const auto sequences = make_tree({.nodes = {1, 3}, .tokens = {320, 40}});
  const Planned members = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32, .shared_members_min = 4});
  EXPECT_EQ(members.outcome.reason(), NotShared::kOneMember);
  const Planned pages = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32, .shared_pages_min = 11});
  EXPECT_EQ(pages.outcome.reason(), NotShared::kBelowMinimum);
  const Planned enough =
      plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32, .shared_pages_min = 10, .shared_members_min = 3});
  EXPECT_EQ(enough.outcome.shared_pages, 10u);
}

TEST(Planner, APromptChunkDoesNotSwitchSharingOffForTheOthers) {
  auto sequences = make_tree({.nodes = {1, 17}, .tokens = {1024, 600}});
  for (uint32_t r = 0; r < 16; ++r) {
    sequences[r].kv_len = 1064;
  }
  sequences[16].q_len = 512;
  const Planned planned =
      plan_of(sequences, 32, {}, {.rows_tile = 8, .key_tile = 3}, {.group = 3, .kv_bytes_token = 1});
  EXPECT_EQ(planned.outcome.path, Path::kMixed);
  EXPECT_EQ(planned.outcome.members, 16u);
  EXPECT_EQ(planned.outcome.bytes_unique, 1024u + 16 * 40 + 600);
}

TEST(Planner, AFullPlanFallsBackToFlat) {
  // Tails of 96 cuts behind one shared page: their partials do not fit.
  const auto sequences = make_tree({.nodes = {1, 8}, .tokens = {32, 96 * 32}});
  const Planned planned = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .cut = 32});
  EXPECT_EQ(planned.outcome.path, Path::kFlat);
  EXPECT_EQ(planned.outcome.reason(), NotShared::kPlanCapacity);
  EXPECT_EQ(planned.count(NotShared::kPlanCapacity), 1u);
  EXPECT_EQ(planned.direct(), 8u);
}

TEST(Planner, AnInjectedFailureRunsFlatAndIsCountedOnce) {
  const auto sequences = make_tree({.nodes = {1, 2, 8}, .tokens = {1024, 512, 40}});
  const Planned planned = plan_of(sequences, 32, {.sharing = Sharing::kAlways, .inject_failure = true});
  EXPECT_EQ(planned.outcome.path, Path::kFlat);
  EXPECT_EQ(planned.outcome.reason(), NotShared::kFailed);
  EXPECT_EQ(planned.count(NotShared::kFailed), 1u);
  EXPECT_EQ(planned.direct(), 8u);
  const Planned nothing = plan_of(make_tree({.nodes = {4}, .tokens = {100}}), 32, {.inject_failure = true});
  EXPECT_EQ(nothing.count(NotShared::kFailed), 0u);
}

TEST(Planner, LongSequencesAreCutUntilAllWorkersAreBusy) {
  const auto one = make_tree({.nodes = {1}, .tokens = {16384}});
  const Planned alone = plan_of(one, 32, {}, kReadBound, {.workers = 8, .kv_heads = 2});
  EXPECT_GE(alone.items.size(), 4u);
  EXPECT_EQ(alone.outcome.splits + 1, alone.items.size());
  const Planned single = plan_of(one, 32, {}, kReadBound, {.workers = 1, .kv_heads = 2});
  EXPECT_EQ(single.items.size(), 1u);
  EXPECT_LT(alone.outcome.predicted_ns, single.outcome.predicted_ns / 6);
}

TEST(Planner, APromptChunkIsItemsOfBoundedTokensThatEndAtTheirLastKey) {
  auto sequences = make_tree({.nodes = {1}, .tokens = {500}, .q_len = 300});
  const Planned planned = plan_of(sequences, 32, {});
  ASSERT_EQ(planned.items.size(), 5u);
  std::set<uint32_t> ends;
  for (const WorkItem& item : planned.items) ends.insert(item.key_count);
  EXPECT_EQ(ends, (std::set<uint32_t>{264, 328, 392, 456, 500}));
  EXPECT_EQ(planned.direct(), 5u);
}

TEST(Planner, ArraysFollowTheLimits) {
  const PlanLimits limits{.sequences_max = 64, .tokens_max = 512, .pages_per_sequence_max = 256, .page_size = 32};
  EXPECT_EQ(limits.items_max(), 512u + 128 + 1024);
  EXPECT_EQ(limits.partials_max(), 1024u + 64 * 64);
}

TEST(Planner, ATableThatBreaksTheRulesIsRefusedByName) {
  const auto sequences = make_tree({.nodes = {2}, .tokens = {100}});
  auto planner = Planner::create(testing::limits_for(sequences, 32), {}, {}, {});
  ASSERT_TRUE(planner);
  auto broken = sequences;
  broken[1].kv_len = 129;
  auto plan = planner->plan(PageTableStorage(32, broken).view());
  EXPECT_EQ(plan.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(plan.status().message().find("sequence 1 has 129 keys in 5 pages"), std::string::npos);
  broken = sequences;
  broken[0].q_len = 2;
  EXPECT_NE(planner->plan(PageTableStorage(32, broken).view()).status().message().find("the limit is 2"),
            std::string::npos);
  EXPECT_FALSE(planner->plan(PageTableStorage(16, sequences).view()));
  EXPECT_TRUE(planner->plan(PageTableStorage(32, sequences).view()));
  EXPECT_FALSE(Planner::create({}, {}, {}, {}));
  EXPECT_FALSE(Planner::create(testing::limits_for(sequences, 32), {.cut = 0}, {}, {}));
}

TEST(PlannerNames, SharingIsParsedWithItsSpellings) {
  for (const char* text : {"auto", "1", "true", "yes", "on"}) EXPECT_EQ(*parse_sharing(text), Sharing::kAuto);
  for (const char* text : {"off", "0", "false", "no"}) EXPECT_EQ(*parse_sharing(text), Sharing::kOff);
  EXPECT_EQ(*parse_sharing("always"), Sharing::kAlways);
  for (const char* text : {"", "Auto", "maybe"}) EXPECT_FALSE(parse_sharing(text)) << text;
}

TEST(PlannerNames, EveryReasonHasItsOwnName) {
  std::set<std::string> names;
  for (size_t i = 0; i < kNotSharedKinds; ++i) names.insert(to_string(static_cast<NotShared>(i)));
  EXPECT_EQ(names.size(), kNotSharedKinds);
  EXPECT_FALSE(names.contains("?"));
}

}  // namespace
}  // namespace headwater::attention
