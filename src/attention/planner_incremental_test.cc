// The plan updated from the step before equals the plan made from scratch.
#include <gtest/gtest.h>

#include <cstring>

#include "attention/attention.h"
#include "support/forest.h"
#include "support/plan_audit.h"

namespace headwater::attention {
namespace {

using testing::PageTableStorage;
using testing::SequencePages;

template <typename T>
::testing::AssertionResult same(const char* name, std::span<const T> a, std::span<const T> b) {
  if (a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << name << " differ";
}

void expect_same(const Plan& a, const Plan& b) {
  EXPECT_TRUE(same("items", a.items, b.items));
  EXPECT_TRUE(same("token_order", a.token_order, b.token_order));
  EXPECT_TRUE(same("token_position", a.token_position, b.token_position));
  EXPECT_TRUE(same("merge_indptr", a.merge_indptr, b.merge_indptr));
  EXPECT_TRUE(same("merge_slots", a.merge_slots, b.merge_slots));
  EXPECT_TRUE(same("token_empty", a.token_empty, b.token_empty));
  EXPECT_EQ(a.partials, b.partials);
  const Outcome &x = a.outcome, &y = b.outcome;
  EXPECT_EQ(x.path, y.path);
  EXPECT_EQ(x.roots, y.roots);
  EXPECT_EQ(x.groups, y.groups);
  EXPECT_EQ(x.depth, y.depth);
  EXPECT_EQ(x.members, y.members);
  EXPECT_EQ(x.members_total, y.members_total);
  EXPECT_EQ(x.shared_pages, y.shared_pages);
  EXPECT_EQ(x.tokens_saved, y.tokens_saved);
  EXPECT_EQ(x.items, y.items);
  EXPECT_EQ(x.splits, y.splits);
  EXPECT_EQ(x.bytes_read, y.bytes_read);
  EXPECT_EQ(x.bytes_flat, y.bytes_flat);
  EXPECT_EQ(x.bytes_unique, y.bytes_unique);
  EXPECT_EQ(x.predicted_ns, y.predicted_ns);
  EXPECT_EQ(x.not_shared, y.not_shared);
}

// A batch as an engine changes it: most steps append, some cross a page, sequences join, leave, fork, and pages of one
// are replaced by those of another when they turn out equal.
class EditedBatch {
 public:
  EditedBatch(uint64_t seed, uint32_t page_size) : random_(seed), page_size_(page_size) {}
  static constexpr uint32_t kSequencesMax = 10;
  static constexpr uint32_t kPagesMax = 40;

  const std::vector<SequencePages>& sequences() const { return sequences_; }

  void edit() {
    const uint32_t kind = sequences_.empty() ? 99 : random_.below(100);
    if (kind < 75) {
      for (SequencePages& sequence : sequences_) append(sequence, kind < 60 ? 1 : random_.below(page_size_ + 1));
    } else if (kind < 80) {
      SequencePages& one = any();
      one.q_len = std::min(one.kv_len, random_.between(1, 7));
    } else if (kind < 85) {
      sequences_.erase(sequences_.begin() + random_.below(static_cast<uint32_t>(sequences_.size())));
    } else if (kind < 90) {
      fork();
    } else if (kind < 95) {
      merge();
    } else {
      join();
    }
  }

 private:
  SequencePages& any() { return sequences_[random_.below(static_cast<uint32_t>(sequences_.size()))]; }

  void append(SequencePages& sequence, uint32_t tokens) {
    if (sequence.kv_len == 0 || sequence.kv_len + tokens > kPagesMax * page_size_) return;
    sequence.kv_len += tokens;
    while (sequence.pages.size() * page_size_ < sequence.kv_len) sequence.pages.push_back(next_page_++);
  }
  void join() {
    if (sequences_.size() == kSequencesMax) return;
    SequencePages sequence{.version = next_version_++};
    if (random_.below(8) > 0) {
      sequence.kv_len = 1;
      append(sequence, random_.below(20 * page_size_));
    }
    sequences_.push_back(sequence);
  }
  // Half the forks share even the partial last page, as before a copy on write.
  void fork() {
    if (sequences_.size() == kSequencesMax) return;
    SequencePages child = any();
    child.version = next_version_++;
    if (random_.below(2) == 0 && !child.pages.empty()) child.pages.resize((child.kv_len + page_size_ - 1) / page_size_);
    if (random_.below(2) == 0 && !child.pages.empty()) child.pages.back() = next_page_++;
    sequences_.push_back(child);
  }
  void merge() {
    SequencePages& into = any();
    const SequencePages& from = any();
    const uint32_t pages = std::min(into.kv_len, from.kv_len) / page_size_;
    if (pages == 0) return;
    std::copy_n(from.pages.begin(), random_.between(1, pages), into.pages.begin());
    into.version = next_version_++;
  }

  Random random_;
  uint32_t page_size_;
  std::vector<SequencePages> sequences_;
  PageId next_page_ = 1;
  uint64_t next_version_ = 1;
};

struct Mode {
  PlanSettings settings;
  DeviceShape device;
};

class PlannerIncremental : public ::testing::TestWithParam<Mode> {};

TEST_P(PlannerIncremental, EqualsThePlanFromScratchAfterThousandsOfEdits) {
  const uint32_t page_size = 8;
  const Mode& mode = GetParam();
  const PlanLimits limits{.sequences_max = EditedBatch::kSequencesMax,
                          .tokens_max = 80,
                          .pages_per_sequence_max = EditedBatch::kPagesMax,
                          .page_size = page_size};
  const CostModel cost{.item = 20, .row = 2, .partial = 4};
  auto updated = Planner::create(limits, mode.settings, cost, mode.device);
  auto fresh = Planner::create(limits, mode.settings, cost, mode.device);
  ASSERT_TRUE(updated && fresh);
  EditedBatch batch(20260801, page_size);
  PageTableStorage storage(page_size);
  uint32_t incremental = 0, shared = 0;
  for (int edit = 0; edit < 2500; ++edit) {
    batch.edit();
    storage.assign(batch.sequences());
    const PageTable table = storage.view();
    auto a = updated->plan(table);
    auto b = fresh->plan_from_scratch(table);
    ASSERT_TRUE(a && b) << a.status().message();
    ASSERT_FALSE((*b)->outcome.incremental);
    incremental += (*a)->outcome.incremental;
    shared += (*a)->outcome.groups > 0;
    expect_same(**a, **b);
    ASSERT_EQ(testing::PlanAudit(**a, table, *updated, mode.device.tokens_item_max).run(), "") << "edit " << edit;
    if (HasFailure()) FAIL() << "edit " << edit;
  }
  EXPECT_GT(incremental, 800u);
  EXPECT_GT(shared, 500u);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, PlannerIncremental,
    ::testing::Values(Mode{{.cut = 32}, {.workers = 4, .kv_heads = 2, .group = 3, .kv_bytes_token = 5}},
                      Mode{{.invariant = false, .cut = 64}, {.workers = 8, .kv_bytes_token = 5}},
                      Mode{{.cut = 16, .window = 77}, {.workers = 2, .kv_bytes_token = 5}},
                      Mode{{.sharing = Sharing::kAlways, .cut = 16}, {.tokens_item_max = 2, .kv_bytes_token = 5}}));

TEST(PlannerIncrementalRule, ATailThatGrowsInsideItsLastCutIsPatchedAndOneThatLeavesItReusesTheForest) {
  const auto sequences = testing::make_tree({.nodes = {1, 8}, .tokens = {512, 40}, .pages_spare = 32});
  PageTableStorage storage(32, sequences);
  auto planner = Planner::create(testing::limits_for(sequences, 32), {}, {}, {});
  ASSERT_TRUE(planner);
  EXPECT_FALSE((*planner->plan(storage.view()))->outcome.incremental);
  for (int step = 0; step < 600; ++step) {
    storage.grow(1);
    EXPECT_TRUE((*planner->plan(storage.view()))->outcome.incremental) << step;
  }
}

TEST(PlannerIncrementalRule, PagesThatOthersTakeOverAreGroupedAnew) {
  const auto before = testing::make_tree({.nodes = {1, 8}, .tokens = {512, 40}});
  ASSERT_EQ(before[1].pages[16], 18u);
  std::vector<SequencePages> after{before[0]};  // seven leave, and seven others take the pages of their tails
  for (SequencePages sequence : testing::make_tree({.nodes = {1, 7}, .tokens = {512, 40}, .first_page = 18})) {
    sequence.version += 100;
    after.push_back(sequence);
  }
  const PlanSettings settings{.sharing = Sharing::kAlways, .cut = 32};
  auto updated = Planner::create(testing::limits_for(before, 32), settings, {}, {});
  auto fresh = Planner::create(testing::limits_for(before, 32), settings, {}, {});
  ASSERT_TRUE(updated && fresh);
  for (const bool is_before : {true, false, true, false}) {
    const PageTableStorage storage(32, is_before ? before : after);
    const PageTable table = storage.view();
    const Plan& plan = **updated->plan(table);
    expect_same(plan, **fresh->plan_from_scratch(table));
    EXPECT_EQ(testing::PlanAudit(plan, table, *updated, DeviceShape{}.tokens_item_max).run(), "");
    EXPECT_EQ(plan.outcome.members, is_before ? 8u : 7u);
    EXPECT_EQ(plan.outcome.shared_pages, 16u);
  }
}

TEST(PlannerIncrementalRule, VersionZeroPromisesNothing) {
  auto sequences = testing::make_tree({.nodes = {1, 4}, .tokens = {512, 40}});
  sequences[2].version = 0;
  PageTableStorage storage(32, sequences);
  auto planner = Planner::create(testing::limits_for(sequences, 32), {}, {}, {});
  ASSERT_TRUE(planner);
  EXPECT_FALSE((*planner->plan(storage.view()))->outcome.incremental);
  EXPECT_FALSE((*planner->plan(storage.view()))->outcome.incremental);
}

}  // namespace
}  // namespace headwater::attention
