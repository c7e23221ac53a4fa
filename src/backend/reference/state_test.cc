#include "backend/reference/state.h"

#include <gtest/gtest.h>

#include <numbers>
#include <numeric>

#include "core/core.h"

namespace headwater::backend::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct State {
  std::vector<double> v;
  double lse2 = kEmptyLse2;
};

State merged(State a, const State& b) {
  merge_state(a.v, a.lse2, b.v, b.lse2);
  return a;
}

struct Keys {
  std::vector<double> scores2;              // base 2
  std::vector<std::vector<double>> values;  // [key][D]
};

Keys random_keys(size_t count, Random& random, double size = 3) {
  Keys keys;
  for (size_t i = 0; i < count; ++i) {
    keys.scores2.push_back(size * random.normal());
    keys.values.push_back({random.normal(), random.normal(), random.normal(), random.normal(), random.normal()});
  }
  return keys;
}

State state_of(const Keys& keys, const std::vector<size_t>& subset) {  // straight from the definition
  State state{std::vector<double>(5), kEmptyLse2};
  if (subset.empty()) return state;
  double m = -kInfinity, l = 0;
  for (const size_t key : subset) m = std::max(m, keys.scores2[key]);
  for (const size_t key : subset) {
    const double weight = std::exp2(keys.scores2[key] - m);
    l += weight;
    for (size_t d = 0; d < 5; ++d) state.v[d] += weight * keys.values[key][d];
  }
  for (double& value : state.v) value /= l;
  state.lse2 = m + std::log2(l);
  return state;
}

void expect_near(const State& got, const State& want) {
  EXPECT_NEAR(got.lse2, want.lse2, 1e-12 * (1 + std::fabs(want.lse2)));
  for (size_t d = 0; d < want.v.size(); ++d) EXPECT_NEAR(got.v[d], want.v[d], 1e-12);
}

TEST(State, AnyPartitionInAnyOrderAndGroupingGivesTheSameState) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const size_t count = random.between(1, 60);
    const Keys keys = random_keys(count, random, seed % 2 == 0 ? 3 : 300);
    std::vector<size_t> all(count);
    std::iota(all.begin(), all.end(), size_t{0});
    std::vector<std::vector<size_t>> parts(random.between(1, 12));  // some of them empty
    for (const size_t key : all) parts[random.below(static_cast<uint32_t>(parts.size()))].push_back(key);
    std::vector<State> states;
    for (const std::vector<size_t>& part : parts) states.push_back(state_of(keys, part));
    while (states.size() > 1) {  // any two become one, until one is left
      std::swap(states[random.below(static_cast<uint32_t>(states.size()))], states.back());
      const State last = states.back();
      states.pop_back();
      State& other = states[random.below(static_cast<uint32_t>(states.size()))];
      other = random.below(2) == 0 ? merged(other, last) : merged(last, other);
    }
    expect_near(states[0], state_of(keys, all));
  }
}

TEST(State, TheEmptyStateIsTheIdentityToTheLastBit) {
  Random random(1);
  const State state = state_of(random_keys(7, random), {0, 1, 2, 3, 4, 5, 6});
  const State empty{std::vector<double>(5), kEmptyLse2};
  for (const State& result : {merged(state, empty), merged(empty, state)}) {
    EXPECT_EQ(result.lse2, state.lse2);
    EXPECT_EQ(result.v, state.v);
  }
}

TEST(State, EmptyStatesMergeToAnEmptyStateAndPlusInfinityCountsAsEmpty) {
  for (const double a : {-kInfinity, kInfinity}) {
    for (const double b : {-kInfinity, kInfinity}) {
      State result = merged({{9, 9}, a}, {{9, 9}, b});
      result = merged(result, {{9, 9}, b});
      EXPECT_EQ(result.lse2, -kInfinity);
      EXPECT_EQ(result.v, std::vector<double>({0, 0}));
    }
    const State full{{1, 2}, 3.5};
    EXPECT_EQ(merged(full, {{9, 9}, a}).v, full.v);
    EXPECT_EQ(merged({{9, 9}, a}, full).v, full.v);
  }
}

TEST(State, AStateMergesWithItselfInPlace) {
  State state{{1, -2}, 3.5};
  merge_state(state.v, state.lse2, state.v, state.lse2);
  EXPECT_EQ(state.v, std::vector<double>({1, -2}));
  EXPECT_EQ(state.lse2, 4.5);
}

TEST(State, FarApartAndVeryNegativeScoresStayExact) {
  const State low{{1, 1}, -86562.0}, high{{3, 3}, -86561.0};
  const State result = merged(low, high);
  EXPECT_NEAR(result.v[0], 1.0 / 3 + 2.0, 1e-12);
  EXPECT_NEAR(result.lse2, -86561.0 + std::log2(1.5), 1e-9);
  EXPECT_EQ(merged(low, {{5, 5}, 1e6}).v, std::vector<double>({5, 5}));
}

// 3,072 keys against 64 of the same score: the right weight, and what a merge in the wrong base makes of it.
TEST(State, TheBaseOfTheLogarithmMatters) {
  const double prefix = std::log2(3072), suffix = std::log2(64);
  EXPECT_NEAR(merged({{0}, prefix}, {{1}, suffix}).v[0], 64.0 / 3136, 1e-12);
  const double to_e = std::numbers::log2e;  // base-2 values read as natural ones
  EXPECT_NEAR(merged({{0}, prefix * to_e}, {{1}, suffix * to_e}).v[0], 0.0037, 1e-4);
}

}  // namespace
}  // namespace headwater::backend::reference
