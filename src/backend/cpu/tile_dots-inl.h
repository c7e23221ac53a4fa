// The two products of attention on AMX tiles (bf16 only), for the interface of VectorDots.
//
// A tile holds 16 rows of 64 bytes. TDPBF16PS adds A x B to C, where A is 16 rows x 16 pairs of factors, and B is 16
// pairs x 16 columns: exactly what lies in a page (kv_pages.h). Sixteen keys of width 64, or sixteen columns of 64 values, are
// two such B tiles.
//
//                     columns: 4 groups of 16 keys (or of 16 value columns)
//   C0..C3 += A x B   B of step 0   | B | B | B | B |     one A tile, loaded once, serves four B tiles
//                     B of step 1   | B | B | B | B |     ...
//
// Tiles: 0-3 C, 4 A, 5 B; 6 and 7 are A and B of half depth (8 pairs), for what is left of a width or page of 16
// mod 32. Rows past a tile's last row are computed from whatever the scratch holds and never read. The instruction adds
// the products of one step first and then adds that to C, so steps go by position: they start at multiples of 32 keys
// inside a page (kKeyAlignment). Inside a step, products with a weight of 0 change no bit.
#pragma once

#include "backend/cpu/tiles-inl.h"
#include "backend/cpu/vector_dots-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

template <typename Kind>
struct TileDots {
  using Elements = Kind;
  using Stored = typename Elements::Stored;
  using Factor = typename Elements::Factor;
  static constexpr uint32_t kRows = 16;
  static constexpr uint32_t kKeyAlignment = 32;

  // Rows that an item does not have are left out of A and C.
  class Session {
   public:
    explicit Session(uint32_t rows) : tiles_(config(rows)) {}

   private:
    static Tiles::Config config(uint32_t rows) {
      Tiles::Config config{.row_bytes = {64, 64, 64, 64, 64, 64, 32, 64}};
      for (uint32_t tile = 0; tile < 8; ++tile) config.rows[tile] = static_cast<uint8_t>(rows);
      config.rows[5] = 16;
      config.rows[7] = 8;
      return config;
    }
    const Tiles tiles_;
  };

  static void scores(const CutPages<Stored>& pages, uint32_t key_width, const Factor* factors, uint32_t /*rows*/,
                     float* scores, uint32_t scores_stride) {
    see_memory();
    for (uint32_t key = pages.begin; key < pages.end; key += 64) {
      const Stored* columns[4];
      const uint32_t groups = columns_at(columns, (pages.end - key) / 16, [&](uint32_t group) {
        const uint32_t at = key + group * 16;
        return pages.keys[at / pages.page_size] + key_offset<2>(at % pages.page_size, key_width);
      });
      clear();
      accumulate(columns, groups, factors, key_width * 2, key_width / 2);
      write(scores + key, groups, scores_stride * 4);
    }
  }

  static void sums(const CutPages<Stored>& pages, uint32_t columns_end, const Factor* weights, uint32_t weights_stride,
                   uint32_t /*rows*/, float* sums, uint32_t sums_stride) {
    see_memory();
    for (uint32_t column = 0; column < columns_end; column += 64) {
      uint32_t groups = 0;
      clear();
      for (uint32_t key = pages.begin; key < pages.end;) {
        const uint32_t slot = key % pages.page_size;
        const uint32_t count = least(pages.page_size - slot, pages.end - key);
        const Stored* block = pages.values[key / pages.page_size];
        const Stored* columns[4];
        groups = columns_at(columns, (columns_end - column) / 16, [&](uint32_t group) {
          return block + value_offset<2>(slot, column + group * 16, pages.page_size);
        });
        accumulate(columns, groups, weights + key, weights_stride * 2, count / 2);
        key += count;
      }
      write(sums + column, groups, sums_stride * 4);
    }
  }

 private:
  template <typename Find>
  static uint32_t columns_at(const Stored* (&columns)[4], uint32_t left, Find&& find) {
    const uint32_t groups = least(4, left);
    for (uint32_t group = 0; group < groups; ++group) columns[group] = find(group);
    return groups;
  }

  static void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }

  static constexpr uint64_t kRowBytes = 64;  // of B: sixteen columns of a pair

  // C += A x B over `pairs` (a multiple of 8) pairs of the reduced axis.
  static inline __attribute__((always_inline)) void accumulate(const Stored* const (&columns)[4], uint32_t groups,
                                                               const Factor* factors, uint64_t factors_bytes,
                                                               uint32_t pairs) {
    uint32_t pair = 0;
    for (; pair + 16 <= pairs; pair += 16) {
      const auto at = [&](uint32_t group) {
        return reinterpret_cast<const std::byte*>(columns[group]) + pair * kRowBytes;
      };
      _tile_loadd(4, factors + 2 * pair, factors_bytes);
      _tile_loadd(5, at(0), kRowBytes);
      _tile_dpbf16ps(0, 4, 5);
      if (groups < 2) continue;
      _tile_loadd(5, at(1), kRowBytes);
      _tile_dpbf16ps(1, 4, 5);
      if (groups < 3) continue;
      _tile_loadd(5, at(2), kRowBytes);
      _tile_dpbf16ps(2, 4, 5);
      if (groups < 4) continue;
      _tile_loadd(5, at(3), kRowBytes);
      _tile_dpbf16ps(3, 4, 5);
    }
    if (pair == pairs) return;
    const auto at = [&](uint32_t group) {
      return reinterpret_cast<const std::byte*>(columns[group]) + pair * kRowBytes;
    };
    _tile_loadd(6, factors + 2 * pair, factors_bytes);
    _tile_loadd(7, at(0), kRowBytes);
    _tile_dpbf16ps(0, 6, 7);
    if (groups < 2) return;
    _tile_loadd(7, at(1), kRowBytes);
    _tile_dpbf16ps(1, 6, 7);
    if (groups < 3) return;
    _tile_loadd(7, at(2), kRowBytes);
    _tile_dpbf16ps(2, 6, 7);
    if (groups < 4) return;
    _tile_loadd(7, at(3), kRowBytes);
    _tile_dpbf16ps(3, 6, 7);
  }

  static void write(float* to, uint32_t groups, uint64_t row_bytes) {
    _tile_stored(0, to, row_bytes);
    if (groups > 1) _tile_stored(1, to + 16, row_bytes);
    if (groups > 2) _tile_stored(2, to + 32, row_bytes);
    if (groups > 3) _tile_stored(3, to + 48, row_bytes);
  }
};

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
