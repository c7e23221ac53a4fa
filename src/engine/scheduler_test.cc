#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace headwater::engine {
namespace {

constexpr uint32_t kPageSize = 4;

// Running and waiting sequences over a real cache, without an engine.
class SchedulerTest : public ::testing::Test {
 protected:
  explicit SchedulerTest(uint32_t pages = 32)
      : cache_(kv::PagedCache::create(
                   {.pages = pages, .page_size = kPageSize, .sequences_max = 16, .pages_per_sequence_max = 32})
                   .value()) {
    plan_.reserve(16, 16);
  }

  Sequence& add(std::vector<TokenId> prompt, int32_t priority = 0, uint32_t n = 1, std::string salt = "") {
    Request request;
    request.prompt = std::move(prompt);
    request.n = n;
    request.priority = priority;
    request.cache_salt = std::move(salt);
    auto ticket = std::make_shared<Ticket>(++id_last_, std::move(request), 0);
    requests_.push_back(std::make_unique<ActiveRequest>(std::move(ticket)));
    return requests_.back()->choices[0];
  }

  Sequence& wait(Sequence& sequence) {
    waiting_.insert(std::ranges::upper_bound(waiting_, &sequence, goes_before), &sequence);
    return sequence;
  }

  // As after `computed` tokens of the prompt and then `generated` more.
  Sequence& run(Sequence& sequence, uint32_t computed, std::vector<TokenId> generated = {}) {
    sequence.storage.assign(sequence.prompt().begin(), sequence.prompt().end());
    sequence.storage.insert(sequence.storage.end(), generated.begin(), generated.end());
    sequence.slot = cache_.open(sequence.salt()).value();
    EXPECT_TRUE(cache_.reserve(sequence.slot, 0, computed, copies_));
    cache_.publish(sequence.slot, sequence.tokens(), computed);
    sequence.computed = computed;
    sequence.phase = Phase::kRunning;
    running_.insert(std::ranges::upper_bound(running_, &sequence, goes_before), &sequence);
    return sequence;
  }

  const StepPlan& schedule_now(uint32_t step_tokens_max = 100, uint32_t sequences_free = 8) {
    schedule(running_, waiting_, {step_tokens_max, sequences_free, 16}, cache_, plan_);
    return plan_;
  }

  std::vector<const Sequence*> admitted() const {
    std::vector<const Sequence*> sequences;
    for (const Admission& admission : plan_.admissions) sequences.push_back(admission.sequence);
    return sequences;
  }

  kv::PagedCache cache_;
  RequestId id_last_ = 0;
  std::vector<std::unique_ptr<ActiveRequest>> requests_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> waiting_;
  std::vector<kv::PageCopy> copies_;
  StepPlan plan_;
};

std::vector<TokenId> tokens(uint32_t count, TokenId first = 0) {
  std::vector<TokenId> list(count);
  for (uint32_t i = 0; i < count; ++i) list[i] = first + static_cast<TokenId>(i);
  return list;
}

TEST_F(SchedulerTest, DecodesComeBeforePromptChunksAndChunksFillTheBudget) {
  run(add(tokens(20)), 4);          // 16 to go
  run(add(tokens(4, 50)), 4, {1});  // decodes
  run(add(tokens(20, 100)), 0);     // 20 to go
  EXPECT_EQ(schedule_now(10).chunks, (std::vector<uint32_t>{9, 1, 0}));
  EXPECT_EQ(schedule_now(20).chunks, (std::vector<uint32_t>{16, 1, 3}));
  EXPECT_EQ(schedule_now(1).chunks, (std::vector<uint32_t>{0, 1, 0}));
}

TEST_F(SchedulerTest, WhoWaitsForATokenDecodesItUnlessItIsTheLast) {
  Sequence& sequence = run(add(tokens(4)), 4, {1});
  const auto decode_in_flight = [&] {
    ++sequence.computed;
    ++sequence.in_flight;
  };
  decode_in_flight();
  EXPECT_EQ(schedule_now().chunks, (std::vector<uint32_t>{1}));
  for (uint32_t generated = 2; generated < sequence.request->ticket->request.sampling.tokens_max; ++generated) {
    EXPECT_EQ(schedule_now().chunks, (std::vector<uint32_t>{1})) << generated;
    decode_in_flight();
  }
  EXPECT_EQ(schedule_now().chunks, (std::vector<uint32_t>{0}));
}

TEST_F(SchedulerTest, SmallerPriorityNumbersGoFirstAndEqualOnesByArrival) {
  Sequence& a = wait(add(tokens(4), 1));
  Sequence& b = wait(add(tokens(4, 10), 0));
  Sequence& c = wait(add(tokens(4, 20), 1));
  schedule_now();
  EXPECT_EQ(admitted(), (std::vector<const Sequence*>{&b, &a, &c}));
}

TEST_F(SchedulerTest, NobodyOvertakesASequenceThatWaitsForPages) {
  run(add(tokens(80)), 80, {1});                 // 20 of 32 pages
  Sequence& first = wait(add(tokens(41, 100)));  // 11 pages; of the 12 left, 2 are promised to the running one
  wait(add(tokens(4, 200)));
  EXPECT_TRUE(schedule_now().admissions.empty());
  EXPECT_TRUE(plan_.starved);
  waiting_.erase(std::ranges::find(waiting_, &first));
  EXPECT_EQ(schedule_now().admissions.size(), 1u);
  EXPECT_FALSE(plan_.starved);
}

TEST_F(SchedulerTest, NothingIsAdmittedWithoutASlotOrBudget) {
  wait(add(tokens(4)));
  EXPECT_TRUE(schedule_now(100, 0).admissions.empty());
  run(add(tokens(8, 50)), 0);
  EXPECT_TRUE(schedule_now(8).admissions.empty());
  EXPECT_EQ(schedule_now(9).admissions.at(0).tokens_max, 1u);
}

TEST_F(SchedulerTest, AnyLoneSequenceThatFitsThePoolIsAdmitted) {
  wait(add(tokens(4 * 32)));
  EXPECT_EQ(schedule_now().admissions.size(), 1u);
}

TEST_F(SchedulerTest, ASequenceWaitsForThePageThatAnotherOneComputes) {
  Sequence& computing = run(add(tokens(12)), 4);
  Sequence& same = wait(add(tokens(12)));
  EXPECT_TRUE(schedule_now().admissions.empty());
  EXPECT_EQ(plan_.waits, (std::vector<Sequence*>{&same}));
  computing.blocked = true;
  EXPECT_EQ(schedule_now().admissions.size(), 1u) << "nobody computes it any more";
}

TEST_F(SchedulerTest, ASequenceDoesNotWaitForOtherTokensOrAnotherSalt) {
  run(add(tokens(12)), 4);
  wait(add(tokens(12, 1)));
  wait(add(tokens(12), 0, 1, "tenant"));
  wait(add(tokens(8)));  // its last token is in the page that is being computed, so it could not attach it
  EXPECT_EQ(schedule_now().admissions.size(), 3u);
  EXPECT_TRUE(plan_.waits.empty());
}

TEST_F(SchedulerTest, TwoColdTwinsInOneStepLeaveOneToCompute) {
  Sequence& first = wait(add(tokens(12)));
  Sequence& second = wait(add(tokens(12)));
  schedule_now();
  EXPECT_EQ(admitted(), (std::vector<const Sequence*>{&first}));
  EXPECT_EQ(plan_.waits, (std::vector<Sequence*>{&second}));
}

TEST_F(SchedulerTest, ChoicesForkTheirSiblingOnceThePromptIsComputed) {
  Sequence& first = run(add(tokens(6), 0, 3), 4);
  Sequence& second = wait(requests_.back()->choices[1]);
  EXPECT_TRUE(schedule_now().admissions.empty());
  EXPECT_TRUE(cache_.reserve(first.slot, 4, 6, copies_));
  first.computed = 6;
  first.storage.push_back(9);
  ASSERT_EQ(schedule_now().admissions.size(), 1u);
  EXPECT_EQ(plan_.admissions[0].sequence, &second);
  EXPECT_EQ(plan_.admissions[0].fork_from, &first);
  EXPECT_EQ(plan_.admissions[0].tokens_max, 1u);
}

TEST_F(SchedulerTest, TheVictimIsTheLastOneUnlessNobodyPollsAnEarlierOne) {
  Sequence& first = run(add(tokens(4)), 4, {1});
  Sequence& second = run(add(tokens(4, 10), -1), 4, {1});
  EXPECT_EQ(victim(running_), &first) << "second has the smaller priority number";
  second.blocked = true;
  EXPECT_EQ(victim(running_), &second);
}

TEST_F(SchedulerTest, ThoseThatNobodyPollsDoNotHideThoseBehindThem) {
  for (TokenId i = 0; i < 20; ++i) wait(add({100 + i, 2, 3})).blocked = true;  // more than are looked at
  const Sequence& behind = wait(add({1, 2, 3}));
  schedule_now();
  EXPECT_EQ(admitted(), std::vector<const Sequence*>{&behind});
}

TEST_F(SchedulerTest, PlansAreBoundedAndPure) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    running_.clear();
    waiting_.clear();
    cache_ =
        kv::PagedCache::create({.pages = 64, .page_size = kPageSize, .sequences_max = 16, .pages_per_sequence_max = 32})
            .value();
    for (uint32_t i = random.below(6); i > 0; --i) {
      const uint32_t length = random.between(1, 24);
      run(add(tokens(length, static_cast<TokenId>(random.below(3))), static_cast<int32_t>(random.below(2))),
          random.below(length));
    }
    for (uint32_t i = random.below(8); i > 0; --i)
      wait(add(tokens(random.between(1, 24), static_cast<TokenId>(random.below(3)))));
    const uint32_t budget = random.between(1, 40);
    const uint32_t slots = random.below(5);
    const uint32_t available = cache_.pages_available();
    schedule_now(budget, slots);
    uint32_t tokens_planned = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      EXPECT_LE(plan_.chunks[i], running_[i]->tokens_left());
      tokens_planned += plan_.chunks[i];
    }
    for (const Admission& admission : plan_.admissions) tokens_planned += admission.tokens_max;
    EXPECT_LE(tokens_planned, budget);
    EXPECT_LE(plan_.admissions.size(), slots);
    const std::vector<uint32_t> chunks = plan_.chunks;
    const std::vector<const Sequence*> first_time = admitted();
    schedule_now(budget, slots);
    EXPECT_EQ(plan_.chunks, chunks);
    EXPECT_EQ(admitted(), first_time);
    EXPECT_EQ(cache_.pages_available(), available);
    EXPECT_TRUE(cache_.audit());
  }
}

}  // namespace
}  // namespace headwater::engine
