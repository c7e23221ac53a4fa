// attend and merge of every back end against naive attention, under random plans: each variant of the contract, each
// shape that broke other engines.
#include <gtest/gtest.h>

#include <array>

#include "conformance/attention_case.h"
#include "conformance/random_plan.h"

namespace headwater::testing {
namespace {

class Attention : public TargetTest {
 protected:
  // `plans` random plans of one case, each with and without lse2.
  void expect_conforms(const AttentionSetting& setting, const Sequences& sequences, RandomPlanOptions options = {},
                       uint32_t plans = 3) {
    if (!takes(setting.kv_shape())) return;
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    const NaiveAttention::Output expected = data.expected(sequences);
    Random random(setting.seed);
    options.window = setting.window;
    options.cut = cut_of(options.cut);
    options.tokens_item_max = backend_->device_shape(setting.kv_shape(), setting.q_heads()).tokens_item_max;
    for (uint32_t i = 0; i < plans; ++i) {
      PlanBuilder builder = random_plan(sequences.table(), options, random);
      EXPECT_TRUE(data.matches(rig.run(sequences, builder.plan(), i % 2 == 0), expected)) << "plan " << i;
    }
  }
};

// A forest with every kind of member: two nested groups, strangers, draft verification, an empty sequence and padding.
Sequences mixed_forest(uint32_t page_size, uint32_t pages_max, Random& random) {
  Sequences sequences(page_size, pages_max, random);
  const std::vector<PageId> root = sequences.new_pages(3);
  std::vector<PageId> child = root;
  for (const PageId page : sequences.new_pages(2)) child.push_back(page);
  const auto behind = [&](const std::vector<PageId>& prefix) {
    return static_cast<uint32_t>(prefix.size()) * page_size + random.between(1, 2 * page_size);
  };
  sequences.add(root, behind(root));
  sequences.add(child, behind(child));
  sequences.add({}, random.between(1, 3 * page_size));
  sequences.add(child, behind(child) + 4, 4);
  sequences.add({}, 0, 0);
  sequences.add(child, behind(child));
  sequences.add_padding();
  sequences.add(root, behind(root) + 7, 7);
  return sequences;
}

struct Shape {
  uint32_t kv_heads, group, head_dim, page_size;
  DType dtype;
};

TEST_P(Attention, EveryHeadSizeGroupPageSizeAndTypeUnderRandomPlans) {
  const std::array head_dims{64u, 80u, 96u, 112u, 128u, 256u};
  const std::array groups{1u, 3u, 5u, 7u, 14u};
  const std::array page_sizes{16u, 32u, 64u, 128u};
  const std::array dtypes{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
  for (uint32_t i = 0; i < 24 / kSlowdown; ++i) {  // every head size meets every type
    Random random(1000 + i);
    const Shape shape{random.between(1, 2), groups[i % 5], head_dims[i % 6], page_sizes[(i / 3) % 4],
                      dtypes[(i + i / 6) % 4]};
    const AttentionSetting setting{
        .name = fmt::format("{} kv heads, group {}, D {}, page {}, {}", shape.kv_heads, shape.group, shape.head_dim,
                            shape.page_size, to_string(shape.dtype)),
        .seed = 1000 + i,
        .kv_heads = shape.kv_heads,
        .group = shape.group,
        .head_dim = shape.head_dim,
        .page_size = shape.page_size,
        .pages = 40,
        .dtype = shape.dtype};
    expect_conforms(setting, mixed_forest(shape.page_size, setting.pages, random), {.cut = 2 * shape.page_size}, 2);
  }
}

// Every multiple of 16 as the head size, every group up to 16, with all that a model may add.
TEST_P(Attention, EveryGroupUpToSixteenAndEveryHeadSizeWithSinksSoftcapAndWindow) {
  for (uint32_t i = 0; i < 16; ++i) {
    Random random(3000 + i);
    const AttentionSetting setting{.name = fmt::format("group {}, D {}", i + 1, 16 * (1 + i * 7 % 16)),
                                   .seed = 3000 + i,
                                   .kv_heads = 1,
                                   .group = i + 1,
                                   .head_dim = 16 * (1 + i * 7 % 16),
                                   .pages = 40,
                                   .dtype = i % 2 == 0 ? DType::kF32 : DType::kBF16,
                                   .window = i % 3 == 0 ? 0 : 37 * (i % 3),
                                   .softcap = i % 4 < 2 ? 0 : 20.0f,
                                   .has_sinks = i % 5 < 2};
    expect_conforms(setting, mixed_forest(16, 40, random), {.cut = 32}, 1);
  }
}

TEST_P(Attention, SmallPagesUnderRandomPlansWhereTheBackEndTakesThem) {
  if (backend_->info().page_size_multiple > 2)
    GTEST_SKIP() << "takes multiples of " << backend_->info().page_size_multiple;
  for (const uint32_t page_size : {1u, 2u, 3u, 4u}) {
    Random random(page_size);
    const AttentionSetting setting{.name = fmt::format("page {}", page_size),
                                   .seed = page_size,
                                   .group = 3,
                                   .head_dim = 20,
                                   .page_size = page_size,
                                   .pages = 100};
    // One key a cut, cuts that end inside a page, and cuts longer than any sequence.
    for (const uint32_t cut : {1u, 7u, 1000u}) {
      expect_conforms(setting, mixed_forest(page_size, setting.pages, random), {.cut = cut}, 8);
    }
  }
}

TEST_P(Attention, KeyAndValueWidthsMayDiffer) {
  Random random(5);
  const AttentionSetting setting{
      .name = "D 96 and 64", .seed = 5, .group = 4, .head_dim = 96, .v_head_dim = 64, .pages = 40};
  expect_conforms(setting, mixed_forest(16, 40, random));
}

TEST_P(Attention, ManyHeads) {
  struct Heads {
    uint32_t kv_heads, group, head_dim;
  };
  for (const auto& [kv_heads, group, head_dim] : {Heads{13, 5, 128},
                                                  {8, 12, 128},
                                                  {97, 1, 128},
                                                  {16, 8, 128},
                                                  {8, 25, 128},
                                                  {11, 3, 256},
                                                  {4, 7, 128},
                                                  {8, 5, 128},
                                                  {1, 14, 64}}) {
    Random random(group);
    Sequences sequences(16, 16, random);
    const std::vector<PageId> shared = sequences.new_pages(4);
    for (const uint32_t tail : {1u, 5u, 20u}) sequences.add(shared, 64 + tail);
    const AttentionSetting setting{.name = fmt::format("{} heads in groups of {}", kv_heads * group, group),
                                   .seed = group,
                                   .kv_heads = kv_heads,
                                   .group = group,
                                   .head_dim = head_dim,
                                   .pages = 16};
    expect_conforms(setting, sequences, {}, 1);
  }
}

TEST_P(Attention, LengthsAroundAPageAndACut) {
  Random random(7);
  for (const uint32_t page_size : {2u, 16u, 32u}) {
    if (page_size % backend_->info().page_size_multiple != 0) continue;
    Sequences sequences(page_size, 400, random);
    for (const uint32_t length :
         {1u, page_size - 1, page_size, page_size + 1, 2 * page_size, 64u, 65u, 127u, 128u, 129u}) {
      sequences.add({}, length);
    }
    const AttentionSetting setting{
        .name = "lengths", .seed = 7, .group = 3, .page_size = page_size, .pages = 400, .dtype = DType::kBF16};
    expect_conforms(setting, sequences, {.cut = 64}, 6);
  }
}

TEST_P(Attention, TwoSequencesOfOnePartialPageEach) {
  for (const uint32_t page_size : {2u, 16u}) {
    if (page_size % backend_->info().page_size_multiple != 0) continue;
    Random random(page_size);
    Sequences sequences(page_size, 4, random);
    for (uint32_t i = 0; i < 2; ++i) sequences.add({}, page_size / 2);
    expect_conforms({.name = "partial pages", .page_size = page_size, .pages = 4}, sequences);
  }
}

TEST_P(Attention, EmptySequencesAndPaddedRowsGiveZerosNotStaleMemory) {
  Random random(8);
  Sequences sequences(16, 64, random);
  const std::vector<PageId> shared = sequences.new_pages(3);
  for (uint32_t i = 0; i < 24; ++i) i == 5 ? sequences.add({}, 0, 0) : sequences.add(shared, 48 + i % 3 + 1);
  for (uint32_t i = 24; i < 32; ++i) sequences.add_padding();
  for (const bool has_sinks : {false, true}) {
    const AttentionSetting setting{.name = "24 of 32", .seed = 8, .group = 3, .has_sinks = has_sinks};
    expect_conforms(setting, sequences);
  }
}

TEST_P(Attention, ABatchOfPaddingAloneGivesZeros) {
  Random random(8);
  Sequences sequences(16, 4, random);
  for (uint32_t i = 0; i < 4; ++i) sequences.add_padding();
  expect_conforms({.name = "padding", .group = 2, .pages = 4}, sequences);
}

TEST_P(Attention, ASlidingWindowStartsAtDifferentKeysOfASharedRun) {
  Random random(9);
  Sequences sequences(16, 200, random);
  const std::vector<PageId> shared = sequences.new_pages(2048 / 16);
  for (const uint32_t tail : {1u, 7u, 16u, 100u, 300u}) sequences.add(shared, 2048 + tail);
  sequences.add(shared, 2048 + 9, 4);
  sequences.add({}, 100);
  for (const uint32_t window : {512u, 16u, 1u}) {
    const AttentionSetting setting{.name = fmt::format("window {}", window),
                                   .seed = 9,
                                   .group = 2,
                                   .pages = 200,
                                   .dtype = DType::kF16,
                                   .window = window};
    expect_conforms(setting, sequences, {.cut = 256}, 4);
  }
}

TEST_P(Attention, TheWindowAppliesUnderEveryType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    Random random(10);
    const AttentionSetting setting{
        .name = "window 37", .seed = 10, .group = 3, .pages = 40, .dtype = dtype, .window = 37, .has_sinks = true};
    expect_conforms(setting, mixed_forest(16, 40, random), {.cut = 32}, 4);
  }
}

TEST_P(Attention, TheSecondPlanOfAStepIsAttendedWhereItIsAsked) {
  Random random(21);
  const AttentionSetting setting{.name = "plan 1", .seed = 21, .group = 2, .pages = 40, .window = 37};
  const Sequences sequences = mixed_forest(16, 40, random);
  const AttentionCase data(setting, sequences);
  AttentionRig rig(*backend_, data);
  PlanBuilder builder = random_plan(sequences.table(), {.cut = cut_of(32), .window = 37}, random);
  EXPECT_TRUE(data.matches(rig.run(sequences, builder.plan(), true, 1), data.expected(sequences)));
}

TEST_P(Attention, SoftCaps) {
  for (const float softcap : {30.0f, 50.0f}) {
    Random random(11);
    const AttentionSetting setting{.name = fmt::format("softcap {}", softcap),
                                   .seed = 11,
                                   .group = 3,
                                   .pages = 40,
                                   .softcap = softcap,
                                   .logit_size = 20};
    expect_conforms(setting, mixed_forest(16, 40, random), {.cut = 32});
  }
}

TEST_P(Attention, ASinkCountsOnceHoweverManyPartialsItsRowHas) {
  Random random(12);
  for (const uint32_t cuts : {1u, 2u, 9u}) {
    Sequences sequences(16, 64, random);
    const std::vector<PageId> shared = sequences.new_pages(2 * cuts - 1);
    for (const uint32_t tail : {3u, 16u}) sequences.add(shared, static_cast<uint32_t>(shared.size()) * 16 + tail);
    const AttentionSetting setting{
        .name = fmt::format("sinks, {} cuts", cuts), .seed = 12, .group = 5, .has_sinks = true};
    expect_conforms(setting, sequences, {.cut = 32}, 6);
  }
}

TEST_P(Attention, RaggedQueriesWithACausalLimitOfTheirOwn) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    Random random(13);
    Sequences sequences(16, 64, random);
    const std::vector<PageId> shared = sequences.new_pages(6);
    for (const uint32_t q_len : {1u, 4u, 1u, 7u}) sequences.add(shared, 96 + q_len + random.below(20), q_len);
    sequences.add({}, 33, 33);   // a prompt from its first token on
    sequences.add({}, 150, 70);  // a chunk of one
    const AttentionSetting setting{.name = "ragged", .seed = 13, .group = 3, .dtype = dtype};
    expect_conforms(setting, sequences, {.cut = 64}, 4);
  }
}

TEST_P(Attention, LogitsNearMinus60000AreOrdinaryNumbers) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    Random random(14);
    const AttentionSetting setting{.name = fmt::format("logits -6e4, {}", to_string(dtype)),
                                   .seed = 14,
                                   .group = 2,
                                   .pages = 40,
                                   .dtype = dtype,
                                   .logit_size = 0.01f,
                                   .logit_offset = -6e4f};
    expect_conforms(setting, mixed_forest(16, 40, random), {.cut = 32});
  }
}

TEST_P(Attention, QMayBeASliceOfAFusedProjection) {
  Random random(15);
  const AttentionSetting setting{.name = "strided q",
                                 .seed = 15,
                                 .kv_heads = 3,
                                 .group = 3,
                                 .pages = 40,
                                 .dtype = DType::kBF16,
                                 .q_padding = 2 * 3 * 64};
  expect_conforms(setting, mixed_forest(16, 40, random));
}

TEST_P(Attention, CutsLongerThanASequenceAndOneCutAPage) {
  Random random(16);
  for (const uint32_t cut : {16u, 48u, 1024u}) {
    const AttentionSetting setting{.name = fmt::format("cut {}", cut), .seed = 16, .group = 3, .pages = 40};
    expect_conforms(setting, mixed_forest(16, 40, random), {.cut = cut}, 6);
  }
}

TEST_P(Attention, SharedRunsOfFifteenSixteenAndAThousandPages) {
  for (const uint32_t pages : {15u, 16u, 1000u}) {
    Random random(pages);
    Sequences sequences(16, 1010, random);
    const std::vector<PageId> shared = sequences.new_pages(pages);
    for (const uint32_t tail : {1u, 16u, 20u}) sequences.add(shared, 16 * pages + tail);
    const AttentionSetting setting{.name = fmt::format("a run of {} pages", pages),
                                   .seed = pages,
                                   .layers = 1,
                                   .pages = 1010,
                                   .dtype = DType::kBF16};
    expect_conforms(setting, sequences, {.cut = 256}, 2);
  }
}

TEST_P(Attention, ManyMembersBehindOnePage) {
  for (const uint32_t members : {2u, 3u, 255u, 256u}) {
    Random random(members);
    Sequences sequences(16, 300, random);
    const std::vector<PageId> shared = sequences.new_pages(1);
    for (uint32_t i = 0; i < members; ++i) sequences.add(shared, 17 + i % 16);
    const AttentionSetting setting{
        .name = fmt::format("{} members", members), .seed = members, .pages = 300, .dtype = DType::kBF16};
    expect_conforms(setting, sequences, {}, 1);
  }
}

// Pages beyond 2^31 elements and 2^32 bytes, at 16,384 elements a page. Only touched pages of the pool cost memory, but
// a system may refuse to map 32 GB: then half, or a quarter, of the first base still lies beyond both.
TEST_P(Attention, PagesBeyondFourGigabytes) {
  for (const uint32_t page_base : {999'990u, 499'990u, 249'990u}) {
    Random random(18);
    const AttentionSetting setting{.name = fmt::format("pages from {}", page_base),
                                   .seed = 18,
                                   .layers = 1,
                                   .kv_heads = 4,
                                   .group = 2,
                                   .page_size = 32,
                                   .pages = 24,
                                   .page_base = page_base,
                                   .dtype = DType::kBF16};
    if (takes(setting.kv_shape()) && !backend_->create_kv_pool(setting.pool_shape())) continue;
    Sequences sequences(32, setting.pages, random);
    const std::vector<PageId> shared = sequences.new_pages(4);
    for (const uint32_t tail : {1u, 30u, 70u}) sequences.add(shared, 128 + tail);
    expect_conforms(setting, sequences);
    return;
  }
  FAIL() << "the system refuses a mapping of 8 GB";
}

TEST_P(Attention, CopiedPagesHoldTheSameKeysAndValues) {
  for (const DType dtype : {DType::kF32, DType::kF8E4M3}) {
    Random random(19);
    const AttentionSetting setting{
        .name = "copies", .seed = 19, .kv_heads = 2, .group = 2, .pages = 60, .dtype = dtype};
    Sequences sequences = mixed_forest(16, setting.pages, random);
    if (!takes(setting.kv_shape())) continue;
    const std::vector<PageId> used(sequences.table().page_ids.begin(), sequences.table().page_ids.end());
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    PlanBuilder builder = random_plan(sequences.table(), {.cut = cut_of(64)}, random);
    const AttentionResult before = rig.run(sequences, builder.plan());
    const PageId spare = sequences.new_pages(1)[0], poisoned = sequences.new_pages(1)[0];
    for (const PageId page : used) {  // away, over with NaN, and back
      backend_->copy_pages(rig.pool(), std::array{page}, std::array{spare});
      backend_->copy_pages(rig.pool(), std::array{poisoned}, std::array{page});
      backend_->copy_pages(rig.pool(), std::array{spare}, std::array{page});
    }
    EXPECT_TRUE(same_bits(rig.run(sequences, builder.plan()).out, before.out, setting.seed)) << to_string(dtype);
    const std::vector<PageId> poison(used.size(), poisoned);
    backend_->copy_pages(rig.pool(), poison, used);
    EXPECT_FALSE(same_bits(rig.run(sequences, builder.plan()).out, before.out, setting.seed)) << to_string(dtype);
  }
}

// The bytes an item reads are its keys once, whoever shares them.
TEST_P(Attention, KvBytesReadAreThoseOfThePlan) {
  for (const DType dtype : {DType::kF16, DType::kF8E4M3}) {
    Random random(17);
    const AttentionSetting setting{.name = "bytes", .seed = 17, .kv_heads = 2, .group = 3, .pages = 40, .dtype = dtype};
    const Sequences sequences = mixed_forest(16, 40, random);
    if (!takes(setting.kv_shape())) continue;
    const AttentionCase data(setting, sequences);
    AttentionRig rig(*backend_, data);
    PlanBuilder builder = random_plan(sequences.table(), {.cut = cut_of(32)}, random);
    const attention::Plan plan = builder.plan();
    uint64_t bytes = 0;
    for (const attention::WorkItem& item : plan.items) {
      bytes += item.key_count * setting.kv_shape().bytes_token_layer();
    }
    (void)backend_->take_kv_bytes_read();
    (void)rig.run(sequences, plan);
#ifdef NDEBUG
    if (!is_reference()) bytes = 0;  // fast back ends count in debug builds only
#endif
    EXPECT_EQ(backend_->take_kv_bytes_read(), bytes);
    EXPECT_EQ(backend_->take_kv_bytes_read(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Attention, ::testing::ValuesIn(all_targets()), target_name);

TEST(Targets, TheReferenceAndACpuTargetRunHere) {
  uint32_t cpu_targets = 0, references = 0;
  for (const Target& target : all_targets()) {
    if (target.backend == "cpu") ++cpu_targets;
    if (target.backend == "reference") ++references;
  }
  EXPECT_GE(cpu_targets, 1u);
  EXPECT_EQ(references, 1u);
}

}  // namespace
}  // namespace headwater::testing
