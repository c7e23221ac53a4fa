#include "backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend/cpu/attention_test_kit.h"

namespace headwater::backend::cpu {
namespace {

class OnEveryTarget : public ::testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Cpu, OnEveryTarget, ::testing::ValuesIn(available_targets()),
                         [](const auto& param) { return to_string(param.param); });

double tolerance(DType dtype) {
  return dtype == DType::kF32 ? 2e-5 : 5e-3;
}

void expect_close(const AttentionKit& kit, DType dtype, const char* what) {
  const AttentionKit::Difference difference = kit.difference();
  EXPECT_LT(difference.out, tolerance(dtype)) << what;
  EXPECT_LT(difference.lse2, tolerance(dtype) * 2) << what;
}

struct Case {
  const char* name;
  KitShape shape;
  std::vector<KitSequence> sequences;
  uint32_t shared;
};

// Pages hold NaN wherever no token was appended.
std::vector<Case> cases() {
  return {
      {"SmolLM2", {}, {{601}, {545}, {570}, {514}}, 512},
      {"F32", {.dtype = DType::kF32}, {{301}, {300}, {258}}, 256},
      {"F16", {.dtype = DType::kF16}, {{301}, {300}, {258}}, 256},
      {"F8", {.dtype = DType::kF8E4M3}, {{301}, {300}, {258}}, 256},
      {"F8Page48",
       {.page_size = 48, .dtype = DType::kF8E4M3, .cut = 96, .window = 70},
       {{301, 4}, {290, 3}, {210, 1}},
       192},
      {"F8WiderKeys",
       {.q_heads = 4, .kv_heads = 2, .head_dim = 112, .v_head_dim = 48, .dtype = DType::kF8E4M3, .softcap = 3.0f},
       {{270, 3}, {263}},
       256},
      {"F8Chunk",
       {.q_heads = 6, .kv_heads = 2, .dtype = DType::kF8E4M3, .cut = 64, .sinks = true},
       {{150, 90}, {101, 70}},
       0},
      {"Group1D80", {.q_heads = 2, .kv_heads = 2, .head_dim = 80, .v_head_dim = 80}, {{280}, {257}}, 256},
      {"Group5D128", {.q_heads = 10, .kv_heads = 2, .head_dim = 128, .v_head_dim = 128}, {{290}, {300}}, 256},
      {"Group7D256", {.q_heads = 7, .kv_heads = 1, .head_dim = 256, .v_head_dim = 256}, {{270}, {300}, {261}}, 256},
      {"WiderKeys", {.q_heads = 4, .kv_heads = 2, .head_dim = 112, .v_head_dim = 48}, {{270}, {263}}, 256},
      {"Page16", {.q_heads = 6, .kv_heads = 2, .page_size = 16, .cut = 64}, {{131}, {145}, {129}}, 128},
      {"Page128F32", {.page_size = 128, .dtype = DType::kF32}, {{300}, {257}}, 256},
      {"Page48", {.page_size = 48, .cut = 96, .window = 70}, {{301, 4}, {290, 3}, {210, 1}}, 192},
      {"Page128", {.page_size = 128, .cut = 128, .window = 150}, {{301, 4}, {290, 3}, {270, 1}}, 256},
      {"Drafts", {}, {{301, 4}, {290, 3}, {270, 4}}, 256},
      {"Window", {.cut = 64, .window = 100}, {{301, 4}, {290, 3}, {270, 1}}, 256},
      {"WindowF32", {.dtype = DType::kF32, .cut = 64, .window = 37}, {{301, 4}, {290, 3}, {270, 1}}, 256},
      {"Softcap", {.softcap = 3.0f}, {{301}, {290}}, 256},
      {"SoftcapF32", {.dtype = DType::kF32, .softcap = 3.0f}, {{301}, {290}}, 256},
      {"Sinks", {.sinks = true}, {{301}, {290}}, 256},
      {"SinksF32", {.dtype = DType::kF32, .sinks = true}, {{301}, {290}}, 256},
      {"Chunk", {.q_heads = 6, .kv_heads = 2, .cut = 64}, {{150, 90}, {101, 70}}, 0},
      {"Shortest", {}, {{1}, {31}, {32}, {33}}, 0},
  };
}

TEST_P(OnEveryTarget, AttendsLikePlainDoubleLoops) {
  for (const Case& c : cases()) {
    AttentionKit kit(GetParam(), c.shape, c.sequences, c.shared);
    kit.run(kit.flat());
    expect_close(kit, c.shape.dtype, c.name);
  }
}

TEST_P(OnEveryTarget, GivesTheSameBitsHoweverTheWorkIsGrouped) {
  for (const Case& c : cases()) {
    AttentionKit kit(GetParam(), c.shape, c.sequences, c.shared);
    kit.run(kit.flat());
    const std::vector<float> out = kit.out();
    const std::vector<float> lse2 = kit.lse2();
    const auto expect_same = [&](const char* grouping) {
      EXPECT_EQ(std::memcmp(out.data(), kit.out().data(), out.size() * sizeof(float)), 0) << c.name << ' ' << grouping;
      EXPECT_EQ(std::memcmp(lse2.data(), kit.lse2().data(), lse2.size() * sizeof(float)), 0) << c.name << grouping;
    };
    kit.run(kit.shared());
    expect_same("shared");
    kit.run(kit.flat(c.shape.cut));
    expect_same("pieces of one cut");
    kit.run(kit.flat_by_sequence());
    expect_same("by sequence");

    std::vector<uint32_t> order(kit.tokens());
    std::iota(order.rbegin(), order.rend(), 0u);
    kit.set_order(order);
    kit.run(kit.shared());
    expect_same("in reverse");
  }
}

TEST_P(OnEveryTarget, GivesTheSameBitsOnSeveralThreadsAndInOtherCompany) {
  const std::vector<KitSequence> sequences = {{601}, {545}, {570}, {514}, {530}};
  AttentionKit one(GetParam(), {}, sequences, 512, 1);
  AttentionKit three(GetParam(), {}, sequences, 512, 3);
  one.run(one.shared());
  three.run(three.shared());
  EXPECT_EQ(one.out(), three.out());

  std::vector<Piece> pieces = one.shared();
  pieces[0].token_count = 3;
  pieces.insert(pieces.begin(), {3, 2, 0, 512});
  one.run(pieces);
  EXPECT_EQ(one.out(), three.out());
}

TEST_P(OnEveryTarget, AnswersATokenWithoutKeysWithZerosAndItsSink) {
  AttentionKit kit(GetParam(), {.sinks = true}, {{40}, {0}, {33}}, 0);
  kit.run(kit.flat());
  expect_close(kit, DType::kBF16, "sinks");
  AttentionKit plain(GetParam(), {}, {{40}, {0}}, 0);
  plain.run(plain.flat());
  expect_close(plain, DType::kBF16, "no sinks");
}

TEST_P(OnEveryTarget, ReachesPagesBeyondTwoToTheThirtyOneElements) {
  const KitShape shape{.q_heads = 2, .kv_heads = 1, .page_size = 16};
  AttentionKit kit(GetParam(), shape, {{40}}, 0, 1, 1'100'000);  // 2,048 elements a page
  kit.run(kit.flat());
  expect_close(kit, DType::kBF16, "far pages");
}

TEST_P(OnEveryTarget, CountsTheBytesItReadsInDebugBuilds) {
  AttentionKit kit(GetParam(), {}, {{300}, {270}}, 256);
  kit.run(kit.shared());
#if defined(NDEBUG)
  EXPECT_EQ(kit.attention().take_kv_bytes_read(), 0u);
#else
  EXPECT_EQ(kit.attention().take_kv_bytes_read(), (256u + 44 + 14) * 3 * (64 + 64) * 2);
  EXPECT_EQ(kit.attention().take_kv_bytes_read(), 0u);
#endif
}

TEST_P(OnEveryTarget, ReadsACopiedPageAsItsOriginal) {
  AttentionKit kit(GetParam(), {}, {{32}, {32}}, 0);
  kit.run(kit.flat());
  ASSERT_NE(kit.pages_of(0)[0], kit.pages_of(1)[0]);
  kit.kv().copy_pages(kit.pages_of(1), kit.pages_of(0));
  AttentionKit::Difference before = kit.difference();
  kit.run(kit.flat());
  EXPECT_GT(kit.difference().out, before.out * 10);  // sequence 0 now sees sequence 1's keys and values
  kit.kv().copy_pages(kit.pages_of(0), kit.pages_of(1));
  const std::vector<float> out = kit.out();
  kit.run(kit.flat());
  EXPECT_EQ(out, kit.out());
}

// Column `column` of the only key at `slot` comes back as the score of a unit query: one key, so out is its value.
class RopeFixture {
 public:
  explicit RopeFixture(Target target) : pool_(ThreadPool::create(1).value()), attention_(target, *pool_) {
    kv_ = CpuKvPool::create(
              {.layers = 1, .kv_heads = 1, .head_dim = 64, .v_head_dim = 64, .pages = 2, .dtype = DType::kF32})
              .value();
    const ops::StepLimits limits{.sequences_max = 4, .tokens_max = 8, .pages_per_sequence_max = 4};
    check(attention_.reserve(limits, kv_->shape(), 2).is_ok(), "reserve");
  }

  // Rotates q and k (two heads of q, one of k) and returns k as it lies in the page.
  std::vector<float> append(std::vector<float>& q, std::vector<float>& k, uint32_t position, uint32_t slot,
                            const ops::Rope& rope) {
    const PageId page = 1;
    ops::DeviceBatch batch{};
    batch.tokens = 1;
    batch.positions = {&position, 1};
    batch.append_pages = {&page, 1};
    batch.append_slots = {&slot, 1};
    ops::RopeAppendParams params{};
    params.q = {q.data(), 1, 128, 128};
    params.k = {k.data(), 1, 64, 64};
    params.v = {k.data(), 1, 64, 64};
    params.batch = &batch;
    params.rope = rope;
    params.pool = kv_.get();
    attention_.rope_append(params);
    const auto* keys = reinterpret_cast<const float*>(static_cast<CpuKvPool&>(*kv_).page(0, page));
    std::vector<float> row;
    for (uint32_t i = 0; i < 64; ++i) row.push_back(keys[(slot / 16 * 64 + i) * 16 + slot % 16]);
    return row;
  }

 private:
  std::unique_ptr<ThreadPool> pool_;
  Attention attention_;
  std::unique_ptr<ops::KvPool> kv_;
};

TEST_P(OnEveryTarget, RotatesPairsByPositionInBothStyles) {
  RopeFixture fixture(GetParam());
  for (const uint32_t dims : {64u, 32u}) {
    std::vector<float> frequencies;
    for (uint32_t i = 0; i < dims / 2; ++i) frequencies.push_back(std::pow(10000.0f, -2.0f * i / dims));
    for (const auto style : {ops::RopeStyle::kAdjacentPairs, ops::RopeStyle::kHalves}) {
      for (const uint32_t position : {0u, 7u, 8000u}) {
        std::vector<float> q(128), k(64);
        for (uint32_t i = 0; i < 128; ++i) q[i] = std::sin(i * 1.5f);
        for (uint32_t i = 0; i < 64; ++i) k[i] = std::cos(i * 0.7f);
        const std::vector<float> q_before = q, k_before = k;
        const std::vector<float> stored =
            fixture.append(q, k, position, position % 32, {style, dims, frequencies.data()});
        EXPECT_EQ(k, k_before);
        for (uint32_t i = 0; i < dims / 2; ++i) {
          const uint32_t x = style == ops::RopeStyle::kHalves ? i : 2 * i;
          const uint32_t y = style == ops::RopeStyle::kHalves ? i + dims / 2 : 2 * i + 1;
          const double angle = static_cast<double>(position) * frequencies[i];
          EXPECT_NEAR(stored[x], k[x] * std::cos(angle) - k[y] * std::sin(angle), 1e-6);
          EXPECT_NEAR(stored[y], k[x] * std::sin(angle) + k[y] * std::cos(angle), 1e-6);
          const uint32_t second = 64;  // the second head of q
          EXPECT_NEAR(q[second + x], q_before[second + x] * std::cos(angle) - q_before[second + y] * std::sin(angle),
                      1e-6);
        }
        for (uint32_t i = dims; i < 64; ++i) EXPECT_EQ(stored[i], k[i]);
      }
    }
  }
}

TEST(CpuKvPool, RefusesShapesItsLayoutCannotHold) {
  const ops::KvShape good{.layers = 1, .kv_heads = 1, .head_dim = 64, .v_head_dim = 64, .page_size = 32, .pages = 1};
  EXPECT_TRUE(CpuKvPool::create(good).is_ok());
  ops::KvShape odd = good;
  odd.page_size = 24;
  EXPECT_EQ(CpuKvPool::create(odd).status().code(), ErrorCode::kUnsupported);
  odd = good;
  odd.head_dim = 72;
  EXPECT_EQ(CpuKvPool::create(odd).status().code(), ErrorCode::kUnsupported);
  odd = good;
  odd.dtype = DType::kQ8_0;
  EXPECT_EQ(CpuKvPool::create(odd).status().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace headwater::backend::cpu
