// What the engine's batches share, seen from the pool, the planner's outcome, the counters and the log.
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "simulation/engine_under_test.h"

namespace headwater::testing {
namespace {

using engine::EngineConfig;
using engine::EngineMetrics;
using engine::Request;
using engine::RequestId;

// The default logger's lines while it lives.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("headwater", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_)));
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  size_t count(std::string_view text) const {
    size_t found = 0;
    const std::string all = lines_.str();
    for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    return found;
  }

 private:
  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST(EngineSharing, ForkedChoicesShareThePromptsPagesAndThePlannerGroupsExactlyThose) {
  EngineConfig config = small_config(4);
  config.prefix_cache = false;  // so that only the three sequences count as holders
  EngineUnderTest test(config, 64);
  Request request = make_request(random_tokens(14, 1), 24);  // three full pages and half a page
  request.n = 3;
  request.sampling.temperature = 1;
  const RequestId id = test.submit(request);
  test.steps(6);
  const kv::PagedCache& cache = test.engine->cache();
  for (kv::SequenceSlot slot = 0; slot < 3; ++slot) {
    ASSERT_GE(cache.pages(slot).size(), 4u);
    for (size_t page = 0; page < cache.pages(slot).size(); ++page) {
      EXPECT_EQ(cache.reference_count(cache.pages(slot)[page]), page < 3 ? 3u : 1u)
          << "slot " << slot << " page " << page;
    }
  }
  const attention::Outcome& outcome = test.engine->last_outcome();
  EXPECT_EQ(outcome.path, attention::Path::kShared);
  EXPECT_EQ(outcome.roots, 1u);
  EXPECT_EQ(outcome.members, 3u);
  EXPECT_EQ(outcome.shared_pages, 3u);
  EXPECT_EQ(outcome.tokens_saved, 12u * 2);
  test.run();
  test.expect_whole_answer(id);
  EXPECT_NE(test.answers[id].tokens[0], test.answers[id].tokens[1]);
  EXPECT_NE(test.answers[id].tokens[1], test.answers[id].tokens[2]);
  EXPECT_EQ(test.engine->metrics().forks.value(), 2u);
  EXPECT_EQ(test.engine->metrics().copies_on_write.value(), 2u);
  EXPECT_EQ(test.decoder.tokens_computed(), 14u + 2 * 1 + 3 * 23);
}

TEST(EngineSharing, RequestsBehindOnePromptTakeTheSharedPath) {
  EngineUnderTest test(small_config(4), 64);
  const std::vector<TokenId> preamble = random_tokens(16, 1);
  for (uint32_t i = 0; i < 3; ++i) test.submit(make_request(joined(preamble, random_tokens(3, 10 + i)), 16));
  const RequestId stranger = test.submit(make_request(random_tokens(9, 50), 16));
  test.steps(6);
  const attention::Outcome& outcome = test.engine->last_outcome();
  EXPECT_EQ(outcome.path, attention::Path::kMixed) << "the stranger shares nothing";
  EXPECT_EQ(outcome.roots, 1u);
  EXPECT_EQ(outcome.members, 3u);
  EXPECT_EQ(outcome.shared_pages, 4u);
  const kv::PagedCache& cache = test.engine->cache();
  EXPECT_EQ(cache.reference_count(cache.pages(0)[0]), 4u) << "three sequences and the prefix tree";
  test.engine->cancel(stranger);
  test.run();
  const EngineMetrics& metrics = test.engine->metrics();
  EXPECT_GT(metrics.attention_steps[static_cast<size_t>(attention::Path::kShared)].value(), 0u);
  EXPECT_GT(metrics.attention_steps[static_cast<size_t>(attention::Path::kMixed)].value(), 0u);
  EXPECT_GT(metrics.shared_prefix_tokens.value(), 0u);
  EXPECT_LT(metrics.kv_bytes_read_actual.value(), metrics.kv_bytes_read_flat.value());
  for (const auto& [id, request] : test.asked) {
    if (id != stranger) test.expect_whole_answer(id);
  }
}

// One plan a window: every layer kind sees its own keys, shared or not, and the outcome is of the one that reads most.
TEST(EngineSharing, LayersOfTwoWindowsSeeTheirOwnKeysWithSharingOnAndOff) {
  const std::vector<TokenId> preamble = random_tokens(40, 1);
  for (const std::vector<uint32_t>& windows : {std::vector<uint32_t>{0, 10}, {10, 0}, {33, 7}, {5}}) {
    const bool is_first_widest = windows[0] == 0 || windows[0] == 33 || windows.size() == 1;
    for (const attention::Sharing sharing : {attention::Sharing::kAlways, attention::Sharing::kOff}) {
      EngineConfig config = small_config(4);
      config.attention.sharing = sharing;
      EngineUnderTest test(config, 128, 400, windows);
      EXPECT_EQ(test.engine->config().attention.window, windows[is_first_widest ? 0 : 1]);
      for (uint32_t i = 0; i < 4; ++i) test.submit(make_request(joined(preamble, random_tokens(2 + i, 10 + i)), 30));
      test.submit(make_request(random_tokens(9, 50), 30));
      test.steps(6);
      if (windows.size() == 2 && windows[0] + windows[1] == 10) {
        const attention::Path path =
            sharing == attention::Sharing::kOff ? attention::Path::kFlat : attention::Path::kMixed;
        EXPECT_EQ(test.engine->last_outcome().path, path) << "the narrow window has left the common prefix";
      }
      test.run();
      for (const auto& [id, request] : test.asked) test.expect_whole_answer(id);
    }
  }
}

TEST(EngineSharing, FindsNestedGroups) {
  EngineUnderTest test(small_config(4), 128);
  const std::vector<TokenId> root = random_tokens(16, 1);
  for (uint32_t tenant = 0; tenant < 2; ++tenant) {
    const std::vector<TokenId> preamble = joined(root, random_tokens(8, 10 + tenant));
    for (uint32_t i = 0; i < 2; ++i)
      test.submit(make_request(joined(preamble, random_tokens(3, 20 + 2 * tenant + i)), 20));
  }
  test.steps(8);
  EXPECT_EQ(test.engine->last_outcome().roots, 1u);
  EXPECT_EQ(test.engine->last_outcome().groups, 3u);
  EXPECT_EQ(test.engine->last_outcome().depth, 2u);
  test.run();
  EXPECT_GT(test.engine->metrics().nested_group_steps.value(), 0u);
  for (const auto& [id, request] : test.asked) test.expect_whole_answer(id);
}

TEST(EngineSharing, AnInjectedFailureGivesTheSameTextCountsOnceAStepAndLogsOnce) {
  LogCapture log;
  EngineConfig config = small_config(4);
  config.attention.inject_failure = true;
  EngineUnderTest test(config, 64);
  const std::vector<TokenId> preamble = random_tokens(16, 1);
  for (uint32_t i = 0; i < 3; ++i) test.submit(make_request(joined(preamble, random_tokens(3, 10 + i)), 16));
  uint64_t steps_failed = 0;
  for (bool more = true; more;) {
    const uint64_t before = test.engine->metrics().attention_failures.value();
    const Result<bool> stepped = test.step();
    ASSERT_TRUE(stepped);
    more = *stepped;
    test.collect();
    const uint64_t counted = test.engine->metrics().attention_failures.value() - before;
    EXPECT_LE(counted, 1u);
    steps_failed += counted;
  }
  EXPECT_GT(steps_failed, 5u);
  EXPECT_EQ(test.engine->metrics().attention_steps[static_cast<size_t>(attention::Path::kShared)].value(), 0u);
  EXPECT_EQ(log.count("flat (failed)"), 1u);
  for (const auto& [id, request] : test.asked) test.expect_whole_answer(id);
}

TEST(EngineSharing, OffReadsEveryPrefixForEveryoneAndSaysSo) {
  LogCapture log;
  EngineConfig config = small_config(4);
  config.attention.sharing = attention::Sharing::kOff;
  EngineUnderTest test(config, 64);
  Request request = make_request(random_tokens(14, 1), 10);
  request.n = 2;
  const RequestId id = test.submit(request);
  test.run();
  test.expect_whole_answer(id);
  const EngineMetrics& metrics = test.engine->metrics();
  EXPECT_EQ(metrics.attention_steps[static_cast<size_t>(attention::Path::kFlat)].value(), metrics.steps.value());
  EXPECT_EQ(metrics.kv_bytes_read_actual.value(), metrics.kv_bytes_read_flat.value());
  EXPECT_EQ(log.count("flat (off)"), 1u);
}

}  // namespace
}  // namespace headwater::testing
