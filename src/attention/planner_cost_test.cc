// The chosen plan's predicted cost is the minimum over all 2^nodes choices, found by an independent and naive search.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "attention/attention.h"
#include "support/forest.h"

namespace headwater::attention {
namespace {

using testing::PageTableStorage;
using testing::SequencePages;

struct NaiveNode {
  std::vector<uint32_t> members;
  uint32_t begin = 0, end = 0;  // keys; a leaf ends at its length rounded up
  std::vector<size_t> children;
};

class NaiveSearch {
 public:
  NaiveSearch(const std::vector<SequencePages>& sequences, uint32_t page_size, const PlanSettings& settings,
              const CostModel& cost, uint32_t group)
      : sequences_(sequences), page_size_(page_size), settings_(settings), cost_(cost), group_(group) {
    quantum_ = settings.invariant ? settings.cut : page_size;
    std::vector<uint32_t> all;
    for (uint32_t r = 0; r < sequences.size(); ++r) {
      if (sequences[r].kv_len > 0 && sequences[r].q_len > 0) all.push_back(r);
    }
    if (!all.empty()) roots_ = grow(all, 0, 0);
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].members.size() > 1) inner_.push_back(n);
    }
  }

  size_t inner() const { return inner_.size(); }

  double minimum() {
    double best = std::numeric_limits<double>::infinity();
    for (uint32_t choice = 0; choice < 1u << inner_.size(); ++choice) {
      attended_.assign(nodes_.size(), true);
      read_.assign(nodes_.size(), false);
      for (size_t i = 0; i < inner_.size(); ++i) attended_[inner_[i]] = choice >> i & 1;
      double sum = 0;
      for (size_t root : roots_) sum += cost_of(root, {}, true);
      best = std::min(best, sum);
    }
    return best;
  }

 private:
  uint32_t shareable(uint32_t r) const { return (sequences_[r].kv_len - sequences_[r].q_len) / page_size_; }

  bool agree(const std::vector<uint32_t>& members, uint32_t page) const {
    for (uint32_t r : members) {
      if (shareable(r) <= page || sequences_[r].pages[page] != sequences_[members[0]].pages[page]) return false;
    }
    return true;
  }

  std::vector<size_t> grow(const std::vector<uint32_t>& members, uint32_t page, uint32_t begin) {
    if (members.size() == 1) {
      const uint32_t end = (sequences_[members[0]].kv_len + quantum_ - 1) / quantum_ * quantum_;
      nodes_.push_back({members, begin, end, {}});
      return {nodes_.size() - 1};
    }
    while (agree(members, page)) ++page;
    const uint32_t end = std::max(begin, page * page_size_ / quantum_ * quantum_);
    std::map<uint64_t, std::vector<uint32_t>> parts;
    for (uint32_t r : members) {
      parts[shareable(r) > page ? sequences_[r].pages[page] : (uint64_t{1} << 32) + r].push_back(r);
    }
    std::map<uint32_t, std::vector<uint32_t>> ordered;
    for (auto& [key, part] : parts) ordered[part[0]] = part;
    std::vector<size_t> children;
    for (auto& [first, part] : ordered) {
      for (size_t child : grow(part, page, end)) children.push_back(child);
    }
    if (end == begin) return children;
    nodes_.push_back({members, begin, end, children});
    return {nodes_.size() - 1};
  }

  double key(double read, double arithmetic) const {
    return read + arithmetic - cost_.overlap * std::min(read, arithmetic);
  }
  double key_again(double keys, double arithmetic) const {
    const double near = key(cost_.key_repeat, arithmetic);
    const double far = key(cost_.key_far, arithmetic);
    if (keys <= cost_.near_keys) return near;
    if (keys >= cost_.far_keys) return far;
    const double part = (keys - cost_.near_keys) / (cost_.far_keys - cost_.near_keys);
    return near * (1 - part) + far * part;
  }

  double cost_of(size_t n, std::vector<size_t> pushed, bool folds) {
    const NaiveNode& node = nodes_[n];
    pushed.push_back(n);
    double sum = 0;
    if (attended_[n]) {
      uint32_t tokens = 0;
      for (uint32_t r : node.members) tokens += sequences_[r].q_len;
      const uint32_t rows = tokens * group_;
      const uint32_t begin = nodes_[pushed[0]].begin;
      const bool leaf = node.members.size() == 1;
      const uint32_t half = leaf ? quantum_ / 2 : 0;  // the last cut of a tail counts as half full
      const double arithmetic = std::ceil(1.0 * rows / cost_.rows_tile) * cost_.key_tile + rows * cost_.key_row;
      for (size_t run : pushed) {
        const uint32_t keys = nodes_[run].end - nodes_[run].begin - (run == n ? half : 0);
        sum += keys * (read_[run] ? key_again(node.end - half - begin, arithmetic) : key(cost_.key_first, arithmetic));
        read_[run] = true;
      }
      const uint32_t last = (leaf ? sequences_[node.members[0]].kv_len : node.end) - 1;
      const uint32_t states = !folds ? last / settings_.cut - begin / settings_.cut + 1 : leaf ? 0 : 1;
      const double dear = std::min(rows, cost_.rows_dear), cheap = rows - dear;
      sum += cost_.item + dear * cost_.row + cheap * cost_.row_cheap + rows * cost_.partial * states;
      pushed.clear();
      folds = false;
    }
    for (size_t child : node.children) sum += cost_of(child, pushed, folds);
    return sum;
  }

  const std::vector<SequencePages>& sequences_;
  uint32_t page_size_;
  PlanSettings settings_;
  CostModel cost_;
  uint32_t group_;
  uint32_t quantum_;
  std::vector<NaiveNode> nodes_;
  std::vector<size_t> roots_, inner_;
  std::vector<bool> attended_, read_;
};

TEST(PlannerCost, TheChoiceIsTheCheapestOfAll) {
  uint32_t shared = 0, nested = 0, partly = 0;
  for (uint64_t seed = 1; seed <= 2500; ++seed) {
    Random random(seed);
    const testing::RandomForestShape shape{.sequences = random.between(2, 12),
                                           .page_size = 4,
                                           .pages_max = 30,
                                           .q_len_max = random.between(1, 3),
                                           .fork_percent = 90};
    const std::vector<SequencePages> sequences = testing::make_random_forest(random, shape);
    const PlanSettings settings{.invariant = random.below(2) == 0, .cut = 4 * random.between(1, 3)};
    const uint32_t near_keys = 10 + random.below(60);
    const CostModel cost{.step = 1000,
                         .item = 1.0 + random.below(100),
                         .key_first = 4.0 + random.below(8),
                         .key_repeat = 2,
                         .key_far = 2.0 + random.below(6),
                         .near_keys = near_keys,
                         .far_keys = near_keys + random.below(60),
                         .overlap = random.below(2) == 0 ? 0.0 : 1.0,
                         .rows_tile = random.between(1, 8),
                         .key_tile = 1.5,
                         .key_row = 0.25 * random.below(3),
                         .row = 1.0 * random.below(5),
                         .rows_dear = random.between(1, 40),
                         .row_cheap = 0.5 * random.below(5),
                         .partial = 1.0 * random.below(10)};
    const uint32_t group = random.between(1, 3);
    NaiveSearch search(sequences, 4, settings, cost, group);
    if (search.inner() > 10) continue;
    const PageTableStorage storage(4, sequences);
    auto planner = Planner::create(testing::limits_for(sequences, 4, 4096), settings, cost, {.group = group});
    ASSERT_TRUE(planner);
    auto plan = planner->plan(storage.view());
    ASSERT_TRUE(plan);
    const Outcome& outcome = (*plan)->outcome;
    ASSERT_NEAR(outcome.predicted_ns, cost.step + search.minimum(), 1e-9 * outcome.predicted_ns) << "seed " << seed;
    shared += outcome.groups > 0;
    nested += outcome.depth > 1;
    partly += outcome.groups > 0 && outcome.groups < search.inner();
  }
  EXPECT_GT(shared, 500u);
  EXPECT_GT(nested, 50u);
  EXPECT_GT(partly, 100u);
}

// Pushing a root into its two shared children can pay where no choice at one node alone shows it.
TEST(PlannerCost, ARootIsPushedIntoTwoSharedChildren) {
  const auto sequences = testing::make_tree({.nodes = {1, 2, 16}, .tokens = {32, 512, 40}});
  const PageTableStorage storage(32, sequences);
  const CostModel cost{
      .item = 5000, .key_first = 8, .key_repeat = 2.5, .rows_tile = 64, .key_tile = 1, .row = 1, .partial = 30};
  auto planner = Planner::create(testing::limits_for(sequences, 32), {.cut = 32}, cost, {});
  ASSERT_TRUE(planner);
  const Outcome& outcome = (*planner->plan(storage.view()))->outcome;
  EXPECT_EQ(outcome.path, Path::kShared);
  EXPECT_EQ(outcome.roots, 2u);
  EXPECT_EQ(outcome.depth, 1u);
  EXPECT_EQ(outcome.shared_pages, 2u * 17);
  EXPECT_EQ(outcome.not_shared[static_cast<size_t>(NotShared::kBelowCost)], 1u);
}

// One page, half full as far as costs go: nothing to cut, and 63 of 64 workers idle.
double predicted_of_one_page(double key_alone, uint32_t tokens_half) {
  const auto sequences = testing::make_tree({.nodes = {1}, .tokens = {32}});
  const PageTableStorage storage(32, sequences);
  const CostModel cost{
      .item = 2, .key_first = 8, .key_repeat = 8, .key_far = 8, .key_alone = key_alone, .key_tile = 0.5, .row = 0};
  PlanSettings settings;
  settings.invariant = false;
  settings.cut = 1u << 30;
  DeviceShape device{.workers = 64};
  device.tokens_half = tokens_half;
  auto planner = Planner::create(testing::limits_for(sequences, 32), settings, cost, device);
  return (**planner->plan(storage.view())).outcome.predicted_ns;
}

TEST(PlannerCost, TheLongestItemCostsWhatItCostsAlone) {
  EXPECT_DOUBLE_EQ(predicted_of_one_page(0, 0), 2 + 16 * 8);  // not told apart
  EXPECT_DOUBLE_EQ(predicted_of_one_page(2, 0), 2 + 16 * 2);
  EXPECT_DOUBLE_EQ(predicted_of_one_page(0.25, 0), 2 + 16 * 0.5);  // arithmetic is left
  EXPECT_DOUBLE_EQ(predicted_of_one_page(20, 0), 2 + 16 * 8);      // never above the rate beside others
}

TEST(PlannerCost, HalfOfAWorkerHasTheMemoryToItselfToo) {
  EXPECT_DOUBLE_EQ(predicted_of_one_page(0, 4), 2 + 16 * 16);
  EXPECT_DOUBLE_EQ(predicted_of_one_page(2, 4), 2 + 16 * 2);
  EXPECT_DOUBLE_EQ(predicted_of_one_page(0.25, 4), 2 + 16 * 1);  // half of the arithmetic
}

TEST(PlannerCost, ACostThatIsNoNumberIsRefused) {
  for (double CostModel::*term :
       {&CostModel::key_alone, &CostModel::unsettled, &CostModel::merge, &CostModel::merge_state}) {
    CostModel cost;
    cost.*term = -1;
    const auto planner =
        Planner::create({.sequences_max = 1, .tokens_max = 1, .pages_per_sequence_max = 1}, {}, cost, {});
    ASSERT_FALSE(planner);
    EXPECT_NE(planner.status().message().find("-1"), std::string::npos) << planner.status().message();
  }
}

}  // namespace
}  // namespace headwater::attention
