// What attention costs on one worker of this processor while the others work as well, in nanoseconds, and the planner's
// cost model that follows from it. Built-in values for every target, or measured ones (calibrate.h).
//
//   one item, one KV head, K keys, R rows, ceil(R / rows_tile) = P passes, width W = (head_dim + v_head_dim) / 128:
//     item + R * (row + row_width * W) + K * (P * (pass + pass_width * W) + R * (weight + weight_width * W))
//     + KiB read * read(what the worker read since it last had these keys)      (scales of 8-bit pages not counted)
//   one row's state merged: partial + partial_width * W
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "attention/plan.h"
#include "backend/cpu/targets.h"
#include "ops/backend.h"

namespace headwater::backend::cpu {

// Changes with the terms below and whenever the attention kernels become faster or slower.
inline constexpr uint32_t kCostsVersion = 3;

// Distances at which reading is measured, KiB a worker. Up to kWarmKib nothing is added to the arithmetic.
inline constexpr uint32_t kWarmKib = 256;
inline constexpr std::array<uint32_t, 9> kReadKib = {512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 65536};

struct ElementCosts {  // of one KV element type
  double item = 0;
  double row = 0, row_width = 0;
  double pass = 0, pass_width = 0;
  double weight = 0, weight_width = 0;
  double partial = 0, partial_width = 0;
  std::array<double, kReadKib.size()> read{};  // nanoseconds a KiB
  double error = 0;  // of the terms above: nine timed items in ten were no farther off, as a share of their time

  double read_ns_kib(double distance_kib) const;  // between the measured distances by their logarithm
  double distance_kib(double share) const;  // at which reading costs that share of reading beyond the private cache
};

struct AttentionCosts {
  double step = 0;  // attend() and merge() of a plan without work
  ElementCosts bf16, f16, f32, f8;

  const ElementCosts& of(DType dtype) const;
  ElementCosts& of(DType dtype) { return const_cast<ElementCosts&>(std::as_const(*this).of(dtype)); }
};

uint32_t rows_tile(Target target, DType dtype);  // rows of one pass over the keys
AttentionCosts built_in_costs(Target target);

// By name, as "bf16.pass_width" or "f32.read_4096k". kCorrupt when a name is missing, or a value negative, not finite or
// above a second.
ops::Costs to_named(const AttentionCosts& costs);
Result<AttentionCosts> from_named(const ops::Costs& named);

attention::CostModel cost_model(const AttentionCosts& costs, Target target, uint32_t workers, const ops::KvShape& shape,
                                uint32_t q_heads);

// One timed item: everything in the cache, one KV head.
struct TimedItem {
  double rows;
  double passes;
  double keys;
  double width;  // W above
  double ns;
};
// Least squares of the relative errors, no term below 0. Sets all terms of an item but the reads, and the error.
void fit_items(std::span<const TimedItem> items, ElementCosts& costs);

}  // namespace headwater::backend::cpu
