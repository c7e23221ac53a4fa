// Decodes bytes into cache operations: the first picks the page size, each choice of the exercise takes one more.
#include <cstdio>
#include <cstdlib>

#include "kv/paged_cache_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headwater;
  size_t used = 0;
  const auto choose = [&](uint32_t bound) { return used < size ? data[used++] % bound : 0u; };
  constexpr uint32_t kPageSizes[] = {1, 2, 3, 16};
  kv::CacheExercise exercise(
      {.pages = 8, .page_size = kPageSizes[choose(4)], .sequences_max = 4, .pages_per_sequence_max = 5}, choose);
  while (used < size) {
    const std::string failure = exercise.step();
    if (!failure.empty()) {
      std::fprintf(stderr, "%s\n", failure.c_str());
      std::abort();
    }
  }
  return 0;
}
