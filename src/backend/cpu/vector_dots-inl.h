// The two products of attention on vectors: rows x (16-key groups) for the scores, rows x (value columns) for the sums.
//
// Both are the same micro-kernel: R rows of factors against kVectors vectors of columns, walked in steps along the
// reduced axis. Every loaded vector serves R rows. A row's arithmetic is the same for every R: its own chain of steps
// in order.
//
//            columns (keys, or value columns)
//           [ v0 ][ v1 ][ v2 ][ v3 ]
//   step 0   ....  ....  ....  ....      sums[r][v] += column[step][v] * factor[r][step]
//   step 1   ....  ....  ....  ....
#pragma once

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/kv_elements-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

static inline uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// Where one cut of a KV head lies: its pages, and which of its keys (multiples of 16, from the cut's first page) to
// use.
template <typename Stored>
struct CutPages {
  const Stored* const* keys;    // [pages]
  const Stored* const* values;  // [pages]
  uint32_t page_size;
  uint32_t begin;
  uint32_t end;
};

// Where the first element of a key, and element `column` of a value, lie in a page's block (kv_pages.h); from one step of
// a key, and from one step of values, to the next are kStep * kColumnsTogether elements.
template <uint32_t kStep>
static inline uint64_t key_offset(uint32_t slot, uint32_t key_width) {
  return uint64_t{slot / kColumnsTogether} * key_width * kColumnsTogether + slot % kColumnsTogether * kStep;
}
template <uint32_t kStep>
static inline uint64_t value_offset(uint32_t slot, uint32_t column, uint32_t page_size) {
  const uint32_t step = slot / kStep * kStep;
  return (uint64_t{column / kColumnsTogether} * page_size + step) * kColumnsTogether +
         column % kColumnsTogether * kStep + slot % kStep;
}

template <typename Kind>
struct VectorDots {
  using Elements = Kind;
  using Stored = typename Elements::Stored;
  using Factor = typename Elements::Factor;
  static constexpr uint32_t kStep = Elements::kStep;
  static constexpr uint32_t kKeyAlignment = 16;  // where a cut's first key may lie inside its page
#if defined(__AVX512F__)
  static constexpr uint32_t kRows = 6;  // 24 sums of 32 registers
  static constexpr uint32_t kVectors = 4;
#else
  static constexpr uint32_t kRows = 4;  // 8 sums of 16 registers
  static constexpr uint32_t kVectors = 2;
#endif

  // What is needed while tiles of up to `rows` rows are computed.
  struct Session {
    explicit Session(uint32_t /*rows*/) {}
  };

  // scores[r][key] for keys [begin, end) = factors[r] . key.
  static void scores(const CutPages<Stored>& pages, uint32_t key_width, const Factor* factors, uint32_t rows,
                     float* scores, uint32_t scores_stride) {
    by_rows(
        rows, [&](auto tile) __attribute__((always_inline)) {
          constexpr uint32_t kTile = decltype(tile)::kValue;
          for (uint32_t key = pages.begin; key < pages.end; key += kVectors * kLanes) {
            const Stored* columns[kVectors];
            for (uint32_t v = 0; v < kVectors; ++v) {
              const uint32_t at = clamped(key + v * kLanes, pages.end);
              columns[v] = key_column(pages, key_width, at);
            }
            F32 sums[kTile][kVectors];
            clear(sums);
            accumulate(sums, columns, factors, key_width, key_width / kStep);
            write(sums, scores + key, scores_stride, (pages.end - key) / kLanes);
          }
        });
  }

  // sums[r][column] = weights[r] . values over keys [begin, end), for the first columns_end columns.
  static void sums(const CutPages<Stored>& pages, uint32_t columns_end, const Factor* weights, uint32_t weights_stride,
                   uint32_t rows, float* sums_out, uint32_t sums_stride) {
    by_rows(
        rows, [&](auto tile) __attribute__((always_inline)) {
          constexpr uint32_t kTile = decltype(tile)::kValue;
          for (uint32_t column = 0; column < columns_end; column += kVectors * kLanes) {
            F32 sums[kTile][kVectors];
            clear(sums);
            for (uint32_t key = pages.begin; key < pages.end;) {
              const uint32_t slot = key % pages.page_size;
              const uint32_t count = least(pages.page_size - slot, pages.end - key);
              const Stored* columns[kVectors];
              for (uint32_t v = 0; v < kVectors; ++v)
                columns[v] = value_column(pages, key, clamped(column + v * kLanes, columns_end));
              accumulate(sums, columns, weights + key, weights_stride, count / kStep);
              key += count;
            }
            write(sums, sums_out + column, sums_stride, (columns_end - column) / kLanes);
          }
        });
  }

 private:
  static const Stored* key_column(const CutPages<Stored>& pages, uint32_t key_width, uint32_t key) {
    const uint32_t slot = key % pages.page_size;
    return pages.keys[key / pages.page_size] + key_offset<kStep>(slot, key_width);
  }
  static const Stored* value_column(const CutPages<Stored>& pages, uint32_t key, uint32_t column) {
    const uint32_t slot = key % pages.page_size;
    return pages.values[key / pages.page_size] + value_offset<kStep>(slot, column, pages.page_size);
  }

  template <uint32_t kCount>
  struct Tile {
    static constexpr uint32_t kValue = kCount;
  };

  // A vector past the end repeats the last one; write() leaves its sums out.
  static uint32_t clamped(uint32_t at, uint32_t end) {
    return at < end ? at : end - kLanes;
  }

  template <typename Body>
  static void by_rows(uint32_t rows, Body&& body) {
    switch (rows) {
      case 1:
        return body(Tile<1>{});
      case 2:
        return body(Tile<2>{});
      case 3:
        return body(Tile<3>{});
      case 4:
        return body(Tile<4>{});
#if defined(__AVX512F__)
      case 5:
        return body(Tile<5>{});
      case 6:
        return body(Tile<6>{});
#endif
      default:
        __builtin_trap();
    }
  }

  template <uint32_t kTile>
  static inline __attribute__((always_inline)) void clear(F32 (&sums)[kTile][kVectors]) {
    for (uint32_t r = 0; r < kTile; ++r) {
      for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] = zero();
    }
  }

  template <uint32_t kTile>
  static inline __attribute__((always_inline)) void accumulate(F32 (&sums)[kTile][kVectors],
                                                               const Stored* const (&columns)[kVectors],
                                                               const Factor* factors, uint64_t factors_stride,
                                                               uint32_t steps) {
    for (uint32_t step = 0; step < steps; ++step) {
      for (uint32_t v = 0; v < kVectors; ++v) {
        const auto loaded = Elements::load_step(columns[v] + uint64_t{step} * kStep * kColumnsTogether);
        for (uint32_t r = 0; r < kTile; ++r) {
          sums[r][v] = Elements::step(sums[r][v], loaded, factors + r * factors_stride + uint64_t{step} * kStep);
        }
      }
    }
  }

  template <uint32_t kTile>
  static inline __attribute__((always_inline)) void write(const F32 (&sums)[kTile][kVectors], float* to,
                                                          uint64_t stride, uint32_t vectors) {
    for (uint32_t v = 0; v < kVectors; ++v) {
      if (v >= vectors) return;
      for (uint32_t r = 0; r < kTile; ++r) store(to + r * stride + v * kLanes, sums[r][v]);
    }
  }
};

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
