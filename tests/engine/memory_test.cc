// What a process that serves the default model keeps resident: the weights about once, the pages it uses, and little
// else.
#include <gtest/gtest.h>

#include "engine/real_engine.h"

namespace headwater::testing {
namespace {

constexpr uint64_t kMiB = 1u << 20;

TEST(Memory, ResidentIsTheFileOnceTheKvPoolAndLittleElse) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's shadow is resident, too";
#endif
  const uint64_t at_start = memory_resident_bytes();
  Result<LoadedModel> loaded = load_default_model("auto");
  ASSERT_TRUE(loaded) << loaded.status().message();
  const uint64_t with_weights = memory_resident_bytes();
  const Result<English> english = English::read();
  ASSERT_TRUE(english) << english.status().message();

  engine::EngineConfig config;
  config.kv_bytes = 256 * kMiB;
  const Result<RealEngine> real = create_real_engine(*loaded, config);
  ASSERT_TRUE(real) << real.status().message();
  const uint64_t with_engine = memory_resident_bytes();
  engine::Request request;
  request.prompt = english->prompt({}, 0, 600);
  request.sampling.tokens_max = 16;
  const Result<ExactAnswers> answers = answer_all(*real->engine, {&request, 1});
  ASSERT_TRUE(answers) << answers.status().message();
  const uint64_t at_end = memory_resident_bytes();

  const uint64_t file = loaded->checkpoint->file_bytes();
  const uint64_t pages_used = real->engine->cache().counters().pages_allocated;
  fmt::print(
      "resident MiB: start {}, with weights {}, with engine {}, after a request {}; file {}, KV pool {}, {} pages "
      "used\n",
      at_start / kMiB, with_weights / kMiB, with_engine / kMiB, at_end / kMiB, file / kMiB,
      real->engine->config().kv_bytes / kMiB, pages_used);
  const uint64_t page_bytes = real->engine->config().kv_bytes / real->engine->cache().config().pages;
  EXPECT_LE(at_end, file * 12 / 10 + pages_used * page_bytes + 150 * kMiB);
}

}  // namespace
}  // namespace headwater::testing
