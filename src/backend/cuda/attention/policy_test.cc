// What the Hopper kernel is divided into fits its device, whatever the head size, group and page size.
#include "backend/cuda/attention/policy.h"

#include <gtest/gtest.h>

#include <bit>
#include <utility>
#include <vector>

namespace headwater::backend::cuda {
namespace {

TEST(AttendPolicy, SlabsAndRingsFitTheSharedMemoryOfABlock) {
  constexpr uint32_t kBarriersAndJobs = 3072;  // beside them, tokens too
  for (uint32_t head_dim = 64; head_dim <= 256; head_dim += 8) {
    const AttendPolicy policy = attend_policy(head_dim);
    EXPECT_LE(kStreams * (policy.slab_bytes + policy.slots * policy.slot_bytes) + kBarriersAndJobs, kSharedBytesMax)
        << head_dim;
  }
}

TEST(AttendPolicy, ASlotHoldsATileAndASlabItsRowsInWholePanels) {
  for (uint32_t head_dim = 64; head_dim <= 256; head_dim += 8) {
    const AttendPolicy policy = attend_policy(head_dim);
    EXPECT_GE(policy.head_dim, head_dim);
    EXPECT_EQ(policy.panels * 64, policy.head_dim) << head_dim;
    EXPECT_EQ(policy.tile_keys % 16, 0u) << head_dim;  // keys of one product
    EXPECT_EQ(policy.slot_bytes, policy.tile_keys * policy.head_dim * 2) << head_dim;
    EXPECT_EQ(policy.slab_bytes, kSlabRows * policy.head_dim * 2) << head_dim;
    EXPECT_EQ(policy.slot_bytes % 1024, 0u) << head_dim;  // the swizzle's period
    EXPECT_GE(policy.slots, 3u) << head_dim;              // keys and values of a tile, and one on the way
  }
}

TEST(AttendPolicy, WarpsDivideATileAmongThemWhereRowsAreFew) {
  for (uint32_t head_dim = 64; head_dim <= 256; head_dim += 8) {
    const AttendPolicy policy = attend_policy(head_dim);
    EXPECT_EQ(policy.keys_warp % 16, 0u) << head_dim;  // keys of one product
    EXPECT_EQ(policy.tile_keys % policy.keys_warp, 0u) << head_dim;
    const uint32_t warps = policy.tile_keys / policy.keys_warp;
    EXPECT_LE(warps, 4u) << head_dim;
    EXPECT_EQ(policy.few_rows % 8, 0u) << head_dim;  // rows of one product
    // The warps' states meet in a slot.
    EXPECT_LE(warps * policy.few_rows * policy.head_dim * sizeof(float), policy.slot_bytes) << head_dim;
  }
}

TEST(AttendPolicy, HeadsArePaddedToTheNextSizeBuilt) {
  for (const auto& [head_dim, columns] :
       {std::pair{64u, 64u}, {72u, 128u}, {80u, 128u}, {128u, 128u}, {136u, 256u}, {192u, 256u}, {256u, 256u}}) {
    EXPECT_EQ(attend_policy(head_dim).head_dim, columns);
  }
}

TEST(SlabTokens, TheRowsOfATokenStayTogether) {
  for (uint32_t group = 1; group <= kSlabRows; ++group) {
    const uint32_t tokens = slab_tokens(group);
    EXPECT_GE(tokens, 1u) << group;
    EXPECT_LE(tokens * group, kSlabRows) << group;
    EXPECT_GT((tokens + 1) * group, kSlabRows) << group;
  }
}

TEST(SlabTokens, AGroupThatFitsNoSlabHasNone) {
  EXPECT_EQ(slab_tokens(0), 0u);
  EXPECT_EQ(slab_tokens(kSlabRows + 1), 0u);
  EXPECT_EQ(slab_tokens(1000), 0u);
}

TEST(InverseOfGroup, DividesEveryRowOfASlabExactly) {
  for (uint32_t group = 1; group <= kSlabRows; ++group) {
    for (uint32_t row = 0; row < kSlabRows; ++row) {
      ASSERT_EQ(row * inverse_of(group) >> 16, row / group) << row << " by " << group;
    }
  }
}

TEST(Division, IsExactUpToItsBound) {
  for (const uint32_t divisor : {1u, 2u, 3u, 5u, 7u, 8u, 12u, 31u, 32u, 96u, 127u, 128u, 255u, 256u}) {
    const uint32_t last = (1u << 31) / divisor - 1;
    for (uint32_t n = 0; n < 4096; ++n) {
      ASSERT_EQ(division_by(divisor).quotient(n), n / divisor) << n << " by " << divisor;
      ASSERT_EQ(division_by(divisor).quotient(last - n), (last - n) / divisor) << last - n << " by " << divisor;
    }
  }
}

TEST(PlaceOfJob, EveryItemMeetsEveryKvHeadOnce) {
  for (const uint32_t together : {0u, 2u, 5u}) {
    for (uint32_t items = 1; items <= 100; ++items) {
      for (const uint32_t kv_heads : {1u, 5u, 9u, 256u}) {
        std::vector<uint32_t> seen(items * kv_heads);
        for (uint32_t job = 0; job < items * kv_heads; ++job) {
          const JobPlace at = place_of_job(job, items, division_by(kv_heads), together);
          ASSERT_LT(at.item, items);
          ASSERT_LT(at.kv_head, kv_heads);
          ++seen[at.item * kv_heads + at.kv_head];
        }
        for (const uint32_t times : seen) ASSERT_EQ(times, 1u) << items << " items, " << kv_heads << " heads";
      }
    }
  }
}

TEST(PlaceOfJob, NeighboursReadTheSameHeadOfItemsThatFollowEachOther) {
  for (uint32_t job = 0; job < 32; ++job) {
    EXPECT_EQ(place_of_job(job, 40, division_by(8), 5).item, job);
    EXPECT_EQ(place_of_job(job, 40, division_by(8), 5).kv_head, 0u);
  }
  EXPECT_EQ(place_of_job(32, 40, division_by(8), 5).kv_head, 1u);
  EXPECT_EQ(place_of_job(32 * 8, 40, division_by(8), 5).item, 32u);  // the rest of eight items
}

TEST(ChunkKeys, TheLargestPowerOfTwoThatDividesPageAndTile) {
  for (const uint32_t tile_keys : {32u, 128u}) {
    for (const uint32_t page_size : {16u, 32u, 48u, 64u, 80u, 96u, 128u, 256u}) {
      const uint32_t chunk = chunk_keys(page_size, tile_keys);
      EXPECT_TRUE(std::has_single_bit(chunk)) << page_size;
      EXPECT_EQ(page_size % chunk, 0u) << page_size;
      EXPECT_EQ(tile_keys % chunk, 0u) << page_size;
      EXPECT_TRUE(page_size % (2 * chunk) != 0 || tile_keys % (2 * chunk) != 0) << page_size << " allows more";
    }
  }
  EXPECT_EQ(chunk_keys(256, 128), 128u);
  EXPECT_EQ(chunk_keys(80, 128), 16u);
}

}  // namespace
}  // namespace headwater::backend::cuda
