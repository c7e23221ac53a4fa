#include "bench/timed_backend.h"

namespace headwater::bench {

const char* to_string(Kind kind) {
  constexpr const char* kNames[] = {"embed", "norm",     "matmul", "rope_append", "attend",
                                    "merge", "silu_mul", "gather", "sample",      "copy"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace headwater::bench
