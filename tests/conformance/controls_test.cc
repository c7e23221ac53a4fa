// Faults that shipped elsewhere, put in on purpose: the comparison must catch each of them. Every control first shows
// that the same path without the fault passes.
#include <gtest/gtest.h>

#include <numbers>
#include <numeric>

#include "backend/reference/state.h"
#include "conformance/attention_case.h"
#include "conformance/random_plan.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kPage = 16;

std::vector<uint32_t> batch_order(uint32_t tokens) {
  std::vector<uint32_t> order(tokens);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

// Sequences of one query token behind one shared run, attended as two levels by two separate calls: the run for all of
// them, then each one's tail. What merges the two is the test's own code, so that it can be wrong.
class TwoLevels {
 public:
  TwoLevels(uint32_t shared_pages, std::vector<uint32_t> tails, const AttentionSetting& setting)
      : shared_pages_(shared_pages),
        setting_(setting),
        random_(setting.seed),
        sequences_(make_sequences(std::move(tails))),
        data_(setting_, sequences_),
        backend_(create_reference()),
        rig_(*backend_, data_),
        expected_(data_.expected(sequences_)) {}

  AttentionResult run_shared() {
    PlanBuilder builder = new_plan();
    builder.add_item(0, builder.tokens(), 0, shared_pages_ * kPage, attention::kDirect);
    return rig_.run(sequences_, builder.plan());
  }

  // The window of the tails is measured from position + shift.
  AttentionResult run_tails(uint32_t shift = 0) {
    PlanBuilder builder = new_plan();
    std::vector<uint32_t> positions;
    for (uint32_t t = 0; t < builder.tokens(); ++t) {
      const uint32_t keys = sequences_.table().kv_len[t] - shared_pages_ * kPage;
      builder.add_item(t, 1, shared_pages_, keys, attention::kDirect);
      positions.push_back(builder.position_of(t) + shift);
    }
    attention::Plan plan = builder.plan();
    plan.token_position = positions;
    return rig_.run(sequences_, plan);
  }

  // lse2 values are scaled by `base` before the merge.
  AttentionResult merged(AttentionResult a, const AttentionResult& b, double base = 1) const {
    const size_t width = a.out.size() / a.lse2.size();
    for (size_t row = 0; row < a.lse2.size(); ++row) {
      std::vector<double> v(a.out.begin() + static_cast<ptrdiff_t>(row * width),
                            a.out.begin() + static_cast<ptrdiff_t>((row + 1) * width));
      const std::vector<double> other(b.out.begin() + static_cast<ptrdiff_t>(row * width),
                                      b.out.begin() + static_cast<ptrdiff_t>((row + 1) * width));
      double lse2 = a.lse2[row] * base;
      backend::reference::merge_state(v, lse2, other, b.lse2[row] * base);
      std::copy(v.begin(), v.end(), a.out.begin() + static_cast<ptrdiff_t>(row * width));
      a.lse2[row] = static_cast<float>(lse2 / base);
    }
    return a;
  }

  bool matches(AttentionResult result, bool with_lse2 = true) const {
    if (!with_lse2) result.lse2.clear();
    return static_cast<bool>(data_.matches(result, expected_));
  }

  const Sequences& sequences() const { return sequences_; }
  AttentionRig& rig() { return rig_; }

 private:
  Sequences make_sequences(std::vector<uint32_t> tails) {
    Sequences sequences(kPage, setting_.pages, random_);
    const std::vector<PageId> shared = sequences.new_pages(shared_pages_);
    for (const uint32_t tail : tails) sequences.add(shared, shared_pages_ * kPage + tail);
    return sequences;
  }
  PlanBuilder new_plan() const {
    return PlanBuilder(sequences_.table(), batch_order(sequences_.table().tokens()), 256, setting_.window);
  }

  uint32_t shared_pages_;
  AttentionSetting setting_;
  Random random_;
  Sequences sequences_;
  AttentionCase data_;
  std::unique_ptr<ops::Backend> backend_;
  AttentionRig rig_;
  NaiveAttention::Output expected_;
};

// A prefix of 3,072 keys and a suffix of 64: the wrong base moves the suffix from 2% of the weight to another share.
TEST(Controls, NaturalLogLseIsCaught) {
  TwoLevels levels(192, {64, 64}, {.name = "natural log", .seed = 21, .group = 2, .pages = 210, .dtype = DType::kBF16});
  const AttentionResult shared = levels.run_shared(), tails = levels.run_tails();
  EXPECT_TRUE(levels.matches(levels.merged(shared, tails)));
  EXPECT_FALSE(levels.matches(levels.merged(shared, tails, std::numbers::ln2), false));
}

TEST(Controls, MemberMajorHeadStackingIsCaught) {
  TwoLevels levels(8, {5, 16, 30}, {.name = "stacking", .seed = 22, .group = 4, .pages = 30, .dtype = DType::kBF16});
  const AttentionResult shared = levels.run_shared(), tails = levels.run_tails();
  EXPECT_TRUE(levels.matches(levels.merged(shared, tails)));
  AttentionResult restacked = shared;  // rows written [token][head] and read [head][token]
  const size_t tokens = 3, heads = 4, width = 64;
  for (size_t token = 0; token < tokens; ++token) {
    for (size_t head = 0; head < heads; ++head) {
      const size_t to = token * heads + head, from = head * tokens + token;
      restacked.lse2[to] = shared.lse2[from];
      std::copy_n(shared.out.begin() + static_cast<ptrdiff_t>(from * width), width,
                  restacked.out.begin() + static_cast<ptrdiff_t>(to * width));
    }
  }
  EXPECT_FALSE(levels.matches(levels.merged(restacked, tails), false));
}

TEST(Controls, SharedRunReachingTheLastPageIsCaught) {
  TwoLevels levels(4, {6, 6}, {.name = "last page", .seed = 23, .pages = 10, .dtype = DType::kBF16});
  PlanBuilder right(levels.sequences().table(), batch_order(2), 256, 0);
  right.add_item(0, 2, 0, 4 * kPage, attention::kFold);
  for (const uint32_t t : {0u, 1u}) right.add_item(t, 1, 4, 6, 0);
  EXPECT_TRUE(levels.matches(levels.rig().run(levels.sequences(), right.plan())));
  PlanBuilder wrong(levels.sequences().table(), batch_order(2), 256, 0);  // the first one's last page for both
  wrong.add_item(0, 2, 0, 4 * kPage + 6, attention::kDirect);
  EXPECT_FALSE(levels.matches(levels.rig().run(levels.sequences(), wrong.plan()), false));
}

// Measured from the start of a run that begins at key 1,024, a tail's keys seem 1,024 further away than they are.
TEST(Controls, WindowMeasuredFromTheRunStartIsCaught) {
  TwoLevels levels(64, {600, 900}, {.name = "window", .seed = 24, .pages = 180, .dtype = DType::kBF16, .window = 700});
  const AttentionResult shared = levels.run_shared();
  EXPECT_TRUE(levels.matches(levels.merged(shared, levels.run_tails())));
  EXPECT_FALSE(levels.matches(levels.merged(shared, levels.run_tails(64 * kPage)), false));
}

TEST(Controls, TheComparisonItselfSeesEachKindOfDifference) {
  const Tolerance tolerance{1e-3, 1e-3, 1 - 1e-6};
  const std::vector<double> want{1, -2, 0, std::numeric_limits<double>::infinity()};
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(near({1.0005f, -2, 0, infinity}, want, tolerance, 0));
  EXPECT_FALSE(near({1.01f, -2, 0, infinity}, want, tolerance, 0));  // absolute and relative
  EXPECT_FALSE(near({1, -2, nan, infinity}, want, tolerance, 0));    // a NaN where none belongs
  EXPECT_FALSE(near({1, -2, 0, -infinity}, want, tolerance, 0));     // the other infinity
  EXPECT_FALSE(near({1, -2, 0, 3e38f}, want, tolerance, 0));         // large is not infinite
  EXPECT_FALSE(near({1, -2, 0}, want, tolerance, 0));                // too few
  const Tolerance wide{10, 10, 1 - 1e-6};
  EXPECT_FALSE(near({1, 2, 0, infinity}, want, wide, 0));  // another direction
  EXPECT_FALSE(same_bits({0.0f}, {-0.0f}, 0));
  EXPECT_TRUE(same_bits({nan}, {nan}, 0));
}

}  // namespace
}  // namespace headwater::testing
