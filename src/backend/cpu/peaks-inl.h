// The primitives of attention on data in L1, and plain reading: what the bound of a measurement is made of.
#pragma once

#include "backend/cpu/attention-inl.h"
#include "backend/cpu/bytes-inl.h"
#include "backend/cpu/peaks.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// bf16 products of `rows` rows with kPeakKeys keys of kPeakWidth elements, `repeats` times.
template <template <typename> class Bf16Dots = VectorDots>
static inline void repeat_dots(const PeakBuffers& buffers, uint32_t rows, uint32_t repeats) {
  using Dots = Bf16Dots<Bf16Elements>;
  const auto* keys = reinterpret_cast<const uint16_t*>(buffers.keys);
  const CutPages<uint16_t> pages{&keys, &keys, kPeakKeys, 0, kPeakKeys};
  const auto* factors = reinterpret_cast<const typename Dots::Factor*>(buffers.factors);
  const uint32_t tile_rows = least(rows, Dots::kRows);
  [[maybe_unused]] const typename Dots::Session session(tile_rows);
  for (uint32_t i = 0; i < repeats; ++i) Dots::scores(pages, kPeakWidth, factors, tile_rows, buffers.scores, kPeakKeys);
}

// 2^x, rounding, sum and store of kPeakScores scores in rows of a cut's usual length, `repeats` times.
static inline void repeat_weights(const PeakBuffers& buffers, uint32_t repeats) {
  constexpr uint32_t kRows = kPeakScores / kPeakRowKeys;
  const TileWeights<Bf16Elements> tile{buffers.scores, kPeakRowKeys,
                                       reinterpret_cast<typename Bf16Elements::Factor*>(buffers.factors), kPeakRowKeys};
  View seen[kRows];
  for (View& view : seen) view = {0, kPeakRowKeys};
  float share[kRowsTileMax], lse2[kRowsTileMax];
  for (uint32_t i = 0; i < repeats; ++i) {
    weigh_rows<Bf16Elements>(tile, seen, kRows, 0, kPeakRowKeys, 0, share, lse2);
    buffers.scores[0] = -share[0];
  }
}

// The dot products of quantised weights, eight chains side by side, `repeats` times.
static constexpr uint32_t kByteChains = 8;
static constexpr uint32_t kByteMultiplyAdds = kByteChains * kLanes * 4;
static inline void repeat_byte_dots(const PeakBuffers& buffers, uint32_t repeats) {
  const Bytes weight = load_bytes(reinterpret_cast<const uint8_t*>(buffers.keys));
  const auto* x = reinterpret_cast<const int8_t*>(buffers.keys);
  I32 dots[kByteChains];
#pragma GCC unroll 8
  for (I32& dot : dots) dot = dots_begin<true>(0);
  for (uint32_t i = 0; i < repeats; ++i) {
#pragma GCC unroll 8
    for (uint32_t chain = 0; chain < kByteChains; ++chain)
      dots[chain] = dots_add<true>(dots[chain], weight, x + 4 * chain);
  }
#pragma GCC unroll 8
  for (uint32_t chain = 0; chain < kByteChains; ++chain) store(buffers.scores + chain * kLanes, to_f32(dots[chain]));
}

// Reads bytes (a multiple of 256) once; the sum keeps the loads.
static inline float read_all(const std::byte* data, uint64_t bytes) {
  const auto* from = reinterpret_cast<const float*>(data);
  F32 sums[4] = {zero(), zero(), zero(), zero()};
  for (uint64_t i = 0; i < bytes / sizeof(float); i += 4 * kLanes) {
    for (uint32_t v = 0; v < 4; ++v) sums[v] = max(sums[v], load(from + i + v * kLanes));
  }
  return reduce_max(max(max(sums[0], sums[1]), max(sums[2], sums[3])));
}

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
