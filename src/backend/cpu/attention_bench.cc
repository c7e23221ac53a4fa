// One layer's attention of sequences behind a common prefix: every sequence by itself (flat) against the prefix
// attended once for all (shared), interleaved. The plans are built by hand, so that the kernels alone are compared.
//   ninja attention_bench && src/backend/cpu/attention_bench [target]
// One thread, in its own processor time: other work on the machine takes time away but is not counted. Best decile of
// calls.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "backend/cpu/attention_test_kit.h"

namespace headwater::backend::cpu {
namespace {

constexpr int kTurns = 60;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double best_decile(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + kTurns / 10, times.end());
  return times[kTurns / 10];
}

struct Cell {
  const char* name;
  KitShape shape;
  uint32_t sequences;
  uint32_t shared;
  uint32_t tail;
};

const Cell kCells[] = {
    {"9/3 D64 bf16", {}, 16, 2048, 100},
    {"9/3 D64 bf16", {}, 4, 2048, 100},
    {"9/3 D64 bf16", {}, 1, 2048, 100},
    {"9/3 D64 f32", {.dtype = DType::kF32}, 16, 2048, 100},
    {"14/2 D64 bf16", {.q_heads = 14, .kv_heads = 2}, 16, 2048, 100},
    {"16/8 D128 bf16", {.q_heads = 16, .kv_heads = 8, .head_dim = 128, .v_head_dim = 128}, 16, 2048, 100},
    {"4/1 D256 bf16", {.q_heads = 4, .kv_heads = 1, .head_dim = 256, .v_head_dim = 256}, 16, 2048, 100},
};

bool measure(Target target, const Cell& cell) {
  AttentionKit kit(target, cell.shape, std::vector<KitSequence>(cell.sequences, {cell.shared + cell.tail}),
                   cell.shared);
  kit.run(kit.flat());
  const std::vector<float> expected = kit.out();
  kit.run(kit.shared());
  if (kit.out() != expected) {
    fmt::print(stderr, "{}: flat and shared differ\n", cell.name);
    return false;
  }
  std::vector<double> flat, shared;
  const auto time = [&](const std::vector<Piece>& pieces, std::vector<double>& times) {
    kit.plan(pieces);
    const double begin = thread_seconds();
    kit.run();
    times.push_back(thread_seconds() - begin);
  };
  for (int turn = 0; turn < kTurns; ++turn) {
    time(kit.flat(), flat);
    time(kit.shared(), shared);
  }
  const double flat_us = best_decile(flat) * 1e6;
  const double shared_us = best_decile(shared) * 1e6;
  fmt::print(
      "{:12} {:15} {:2} x ({} + {}): flat {:7.0f} us  shared {:7.0f} us  {:.2f}x  {:.1f} ns a key and KV head (flat)\n",
      to_string(target), cell.name, cell.sequences, cell.shared, cell.tail, flat_us, shared_us, flat_us / shared_us,
      flat_us * 1e3 / (cell.shape.kv_heads * cell.sequences * (cell.shared + cell.tail)));
  return true;
}

}  // namespace
}  // namespace headwater::backend::cpu

int main(int argc, char** argv) {
  using namespace headwater::backend::cpu;
  const auto target = choose_target(argc > 1 ? argv[1] : "");
  if (!target.is_ok()) {
    fmt::print(stderr, "{}\n", target.status().message());
    return 1;
  }
  for (const Cell& cell : kCells) {
    if (!measure(*target, cell)) return 1;
  }
}
