// rope_append: the rotated queries in place, and what reached the pool, read back through attention itself.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "conformance/matrices.h"
#include "conformance/random_plan.h"
#include "conformance/targets.h"
#include "ops/ops.h"
#include "support/compare.h"

namespace headwater::testing {
namespace {

struct RopeCase {
  ops::RopeStyle style;
  uint32_t dims;
  uint32_t head_dim;
  uint32_t page_size;
  DType dtype;
  uint32_t tokens;
  bool has_norms = false;
  bool is_row_norm = false;  // over all heads of a token
  float scale = 1;
};

constexpr uint32_t kKvHeads = 2, kGroup = 3;

// Tokens far apart in position, each in a slot of a page of its own.
class RopeStep {
 public:
  RopeStep(const RopeCase& rope, uint64_t seed) : case_(rope), random_(seed) {
    for (uint32_t i = 0; i < rope.dims / 2; ++i) {
      frequencies_.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / rope.dims)));
    }
    const uint32_t columns = (kGroup + 2) * kKvHeads * rope.head_dim;
    qkv_ = HostMatrix(rope.tokens, columns).fill(random_);
    for (uint32_t t = 0; t < rope.tokens; ++t) {
      positions_.push_back(t == 0 ? 0 : random_.below(8192));
      slots_.push_back(random_.below(rope.page_size));
    }
  }

  ops::KvShape shape() const {
    return {2, kKvHeads, case_.head_dim, case_.head_dim, case_.page_size, case_.tokens, case_.dtype};
  }

  void run(ops::Backend& backend) {
    const ops::StepLimits limits{case_.tokens, case_.tokens, 4, case_.page_size, 1};
    ASSERT_TRUE(backend.reserve_scratch(limits, shape(), kKvHeads * kGroup, 32));
    Result<std::unique_ptr<ops::KvPool>> pool = backend.create_kv_pool(shape());
    ASSERT_TRUE(pool) << pool.status().message();
    pool_ = std::move(pool).value();
    BackendMemory memory(backend);
    Result<ops::StepBlock> block = backend.create_step_block(limits);
    append(memory, *block);
    read_back(memory, *block);
  }

  std::vector<float> queries() {
    std::vector<float> rows;
    for (uint32_t t = 0; t < case_.tokens; ++t) rows.insert(rows.end(), qkv_.row(t), qkv_.row(t) + q_columns());
    return rows;
  }

  std::vector<float> keys, values;  // [T, kv_heads, head_dim] as the pool holds them

 private:
  uint32_t q_columns() const { return kKvHeads * kGroup * case_.head_dim; }
  // q, k and v are slices of one fused projection.
  ops::Matrix slice(const ops::Matrix& qkv, uint32_t first_head, uint32_t heads) const {
    return {qkv.data + uint64_t{first_head} * case_.head_dim, qkv.rows, heads * case_.head_dim, qkv.stride};
  }

  void append(BackendMemory& memory, ops::StepBlock& block) {
    block.layout(case_.tokens, case_.tokens, 0, 0);
    for (uint32_t t = 0; t < case_.tokens; ++t) {
      block.token_ids()[t] = 0;
      block.positions()[t] = positions_[t];
      block.append_pages()[t] = case_.tokens - 1 - t;
      block.append_slots()[t] = slots_[t];
    }
    const ops::Matrix qkv = memory.put(qkv_);
    ops::Backend& backend = memory.backend();
    const float* q_norm = case_.has_norms ? norm_on(backend, 0.5f, kKvHeads * kGroup) : nullptr;
    const float* k_norm = case_.has_norms ? norm_on(backend, 2.0f, kKvHeads) : nullptr;
    const Result<ops::DeviceBatch> batch = backend.begin_step(block);
    backend.rope_append({slice(qkv, 0, kKvHeads * kGroup),
                         slice(qkv, kKvHeads * kGroup, kKvHeads),
                         slice(qkv, kKvHeads * (kGroup + 1), kKvHeads),
                         &*batch,
                         {case_.style, case_.dims, case_.dims == 0 ? nullptr : frequencies_.data(), case_.scale},
                         pool_.get(),
                         1,
                         q_norm,
                         k_norm,
                         0.01f,
                         case_.is_row_norm ? ops::NormSpan::kRow : ops::NormSpan::kHead});
    ASSERT_TRUE(backend.finish());
    const std::vector<float> old_values = qkv_.values();
    memory.get(qkv_, qkv);
    const std::vector<float> new_values = qkv_.values();
    for (size_t i = 0; i < old_values.size(); ++i) {
      const bool is_query = i % qkv_.columns() < q_columns();
      ASSERT_TRUE(is_query || new_values[i] == old_values[i]) << "k and v are left as they were";
    }
  }

  // With a window of one key a row's output is the value of its own slot, and with a unit vector as its query its lse2
  // is one element of the key.
  void read_back(BackendMemory& memory, ops::StepBlock& block) {
    std::vector<uint32_t> indptr{0}, lengths;
    std::vector<PageId> pages;
    for (uint32_t t = 0; t < case_.tokens; ++t) {
      pages.push_back(case_.tokens - 1 - t);
      lengths.push_back(slots_[t] + 1);
      indptr.push_back(t + 1);
    }
    const attention::PageTable table{case_.page_size, indptr, pages, lengths, indptr, {}};
    std::vector<uint32_t> order(case_.tokens);
    std::iota(order.begin(), order.end(), 0u);
    const uint32_t cut = memory.backend().info().invariant ? case_.page_size : attention::kNoCut;
    PlanBuilder builder(table, order, cut, 1);
    for (uint32_t t = 0; t < case_.tokens; ++t) builder.add_item(t, 1, 0, lengths[t], attention::kDirect);
    block.layout(case_.tokens, case_.tokens, 0, case_.tokens);
    std::copy(pages.begin(), pages.end(), block.page_ids().begin());
    block.set_plan(builder.plan());
    ops::Backend& backend = memory.backend();
    const uint32_t width = case_.head_dim, rows = case_.tokens * kKvHeads;
    keys.assign(uint64_t{rows} * width, 0);
    HostMatrix q(case_.tokens, kKvHeads * width), out(case_.tokens, kKvHeads * width), lse2(case_.tokens, kKvHeads);
    const ops::Matrix q_at = memory.put(q), out_at = memory.put(out), lse2_at = memory.put(lse2);
    for (uint32_t d = 0; d < width; ++d) {
      q.fill(0);
      for (uint32_t row = 0; row < rows; ++row) q.image()[row * width + d] = 1;
      memory.set(q_at, q);
      const Result<ops::DeviceBatch> batch = backend.begin_step(block);
      const ops::AttentionParams params{q_at, out_at, lse2_at.data, &*batch, pool_.get(), 1, kKvHeads, {}};
      backend.attend(params);
      backend.merge(params);
      ASSERT_TRUE(backend.finish());
      memory.get(lse2, lse2_at);
      for (uint32_t row = 0; row < rows; ++row) keys[row * width + d] = lse2.image()[row] * std::numbers::ln2_v<float>;
    }
    memory.get(out, out_at);
    values = out.values();
  }

  // Weights from `least` to twice that: [head_dim], or [heads * head_dim] of a row.
  const float* norm_on(ops::Backend& backend, float least, uint32_t heads) const {
    const uint32_t width = case_.is_row_norm ? heads * case_.head_dim : case_.head_dim;
    std::vector<float> weights(width);
    for (uint32_t i = 0; i < width; ++i) weights[i] = least * (1 + static_cast<float>(i) / static_cast<float>(width));
    const Result<ops::Matrix> matrix = backend.allocate(1, width);
    check(matrix.is_ok() && backend.upload(*matrix, weights).is_ok(), "upload");
    return matrix->data;
  }

  RopeCase case_;
  Random random_;
  HostMatrix qkv_{0, 0};
  std::vector<float> frequencies_;
  std::vector<uint32_t> positions_, slots_;
  std::unique_ptr<ops::KvPool> pool_;
};

class RopeAppend : public TargetTest {};

// A key that differs in its last bit may be rounded to the other neighbour: one element in thousands, by an eighth.
Tolerance keys_tolerance(DType dtype) {
  Tolerance tolerance = tolerance_for(dtype, 1);
  if (dtype == DType::kF8E4M3) tolerance.relative = 0.13;
  return tolerance;
}

TEST_P(RopeAppend, RotatesAndAppendsAsTheReferenceDoes) {
  using ops::RopeStyle;
  const std::unique_ptr<ops::Backend> reference = create_reference();
  uint64_t seed = 0;
  for (const RopeCase& rope : {RopeCase{RopeStyle::kAdjacentPairs, 64, 64, 16, DType::kF32, 9},
                               {RopeStyle::kHalves, 64, 64, 32, DType::kF16, 33},
                               {RopeStyle::kAdjacentPairs, 32, 80, 16, DType::kBF16, 5},
                               {RopeStyle::kHalves, 48, 96, 64, DType::kF32, 4},
                               {RopeStyle::kAdjacentPairs, 112, 112, 16, DType::kF16, 1},
                               {RopeStyle::kHalves, 128, 128, 128, DType::kBF16, 3},
                               {RopeStyle::kHalves, 2, 256, 16, DType::kF32, 2},
                               {RopeStyle::kAdjacentPairs, 0, 64, 16, DType::kBF16, 6},
                               {RopeStyle::kHalves, 64, 64, 32, DType::kF8E4M3, 33},
                               {RopeStyle::kAdjacentPairs, 80, 80, 16, DType::kF8E4M3, 7},
                               {RopeStyle::kHalves, 128, 128, 16, DType::kF32, 5, true},
                               {RopeStyle::kAdjacentPairs, 64, 96, 32, DType::kF32, 9, true},
                               {RopeStyle::kHalves, 256, 256, 16, DType::kBF16, 3, true},
                               {RopeStyle::kAdjacentPairs, 64, 64, 16, DType::kF8E4M3, 9, true},
                               {RopeStyle::kHalves, 0, 64, 16, DType::kF32, 3, true},
                               {RopeStyle::kHalves, 128, 128, 16, DType::kF32, 9, true, true},
                               {RopeStyle::kAdjacentPairs, 32, 80, 16, DType::kBF16, 5, true, true},
                               {RopeStyle::kHalves, 96, 96, 16, DType::kF32, 5, false, false, 1.1902f},
                               {RopeStyle::kAdjacentPairs, 48, 64, 32, DType::kF16, 9, true, false, 0.8f}}) {
    if (!takes(RopeStep(rope, 0).shape())) continue;
    const std::string what =
        fmt::format("{} of {} dimensions, {}{}{}, scale {}", rope.dims, rope.head_dim, to_string(rope.dtype),
                    rope.has_norms ? ", norms" : "", rope.is_row_norm ? " of rows" : "", rope.scale);
    RopeStep got(rope, ++seed), expected(rope, seed);
    got.run(*backend_);
    expected.run(*reference);
    EXPECT_TRUE(near(got.queries(), expected.queries(), tolerance_for(DType::kF32, 1), seed, what + ", q"));
    EXPECT_TRUE(near(got.keys, expected.keys, keys_tolerance(rope.dtype), seed, what + ", k"));
    EXPECT_TRUE(near(got.values, expected.values, tolerance_for(rope.dtype, 1), seed, what + ", v"));
  }
}

// Layers of two kinds alternate, as in Gemma 3, and a third comes between: each turns by its own angles.
TEST_P(RopeAppend, AlternatingRopesKeepToTheirAngles) {
  const ops::KvShape shape{3, 1, 64, 64, 16, 1, DType::kF32};
  const ops::StepLimits limits{1, 4, 1, 16, 1};
  const std::vector<std::vector<float>> frequencies{{1.0f, 0.1f}, {0.5f, 0.01f}, {0.3f, 0.2f}};
  const auto run = [&](ops::Backend& backend) {
    std::vector<float> all;
    EXPECT_TRUE(backend.reserve_scratch(limits, shape, 1, 32));
    const auto pool = std::move(backend.create_kv_pool(shape)).value();
    Result<ops::StepBlock> block = backend.create_step_block(limits);
    BackendMemory memory(backend);
    Random random(4);
    for (const uint32_t kind : {0u, 1u, 0u, 1u, 2u, 0u, 1u, 1u, 2u, 2u, 0u}) {
      block->layout(1, 4, 0, 0);
      for (uint32_t t = 0; t < 4; ++t) {
        block->positions()[t] = 100 + 3 * t;
        block->append_pages()[t] = 0;
        block->append_slots()[t] = t;
      }
      HostMatrix q(4, 64), k(4, 64);
      memory.clear();
      const ops::Matrix q_at = memory.put(q.fill(random)), k_at = memory.put(k.fill(random));
      const Result<ops::DeviceBatch> batch = backend.begin_step(*block);
      backend.rope_append(
          {q_at, k_at, k_at, &*batch, {ops::RopeStyle::kHalves, 4, frequencies[kind].data()}, pool.get(), kind});
      EXPECT_TRUE(backend.finish());
      memory.get(q, q_at);
      all.insert(all.end(), q.image().begin(), q.image().end());
    }
    return all;
  };
  EXPECT_TRUE(near(run(*backend_), run(*create_reference()), tolerance_for(DType::kF32, 1), 4));
}

INSTANTIATE_TEST_SUITE_P(Targets, RopeAppend, ::testing::ValuesIn(targets_beside_the_reference()), target_name);

}  // namespace
}  // namespace headwater::testing
