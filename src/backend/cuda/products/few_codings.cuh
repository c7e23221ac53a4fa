// How weights get to the lanes of a product of few rows (few.cuh): a type for each Coding (coding.h).
//   Stage     a pair of blocks in a warp's shared memory
//   Place     what of a pair a lane copies there; advance(): so many pairs on
//   decode()  the words of a block for a lane, as BF16; with kHasRest what they are is the sum of two
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/attention/ptx.cuh"
#include "backend/cuda/products/few.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kLanes = 32;
using TileWords = uint32_t[2][4];  // of a block of a tile: left operands of its two products

__device__ __forceinline__ uint32_t less(uint32_t a, uint32_t b) {  // pairs of BF16
  uint32_t difference;
  constexpr uint32_t kMinusOnes = 0xBF80BF80u;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(b), "r"(kMinusOnes), "r"(a));
  return difference;
}

inline constexpr uint32_t kNothing = 0x80008000u;  // -0, which changes no sum
__device__ __forceinline__ uint32_t product(uint32_t a, uint32_t b, uint32_t added) {
  uint32_t all;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(all) : "r"(a), "r"(b), "r"(added));
  return all;
}
// (word & mask) | base, in one instruction.
__device__ __forceinline__ uint32_t put_on(uint32_t word, uint32_t mask, uint32_t base) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(word), "r"(mask), "r"(base));
  return out;
}

// A copy to shared memory. Its own thread waits for it, and others of the warp after that.
template <typename T>
__device__ __forceinline__ void copy_ahead(T* to, const void* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(T)) : "memory");
  }
}

struct DenseCoding {
  static constexpr bool kHasRest = false, kHasScale = false, kHasMinimum = false;
  // A row's pieces of 16 bytes, moved so that the same ones of eight rows are in different banks.
  struct Stage {
    uint4 pieces[kTileRows][8];
    __device__ static uint32_t place(uint32_t row, uint32_t piece) { return piece ^ row % 8; }
  };
  struct Place {  // eight lanes copy a row, a cache line, and four rows at a time
    const std::byte* from;
    uint64_t four_rows;
    __device__ Place(const FewWeight& weight, uint32_t pairs, uint32_t tile, uint32_t pair, uint32_t lane) {
      constexpr uint32_t kPairBytes = kPairColumns * sizeof(__nv_bfloat16);
      const uint64_t row_bytes = uint64_t{pairs} * kPairBytes;
      from = static_cast<const std::byte*>(weight.data) + (uint64_t{tile} * kTileRows + lane / 8) * row_bytes +
             pair * kPairBytes + lane % 8 * sizeof(uint4);
      four_rows = 4 * row_bytes;
    }
    __device__ void advance(uint32_t pairs) { from += pairs * kPairColumns * sizeof(__nv_bfloat16); }
    __device__ void copy(Stage& to, uint32_t lane) const {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = 4 * i + lane / 8;
        copy_ahead(&to.pieces[row][Stage::place(row, lane % 8)], from + i * four_rows);
      }
    }
  };
  static __device__ void decode(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a, TileWords&) {
    read(stage.pieces, lane % 16, block, lane, a);
  }
  // `row` of `rows` is where the tile's row lane % 16 lies.
  static __device__ void read(const uint4 (*rows)[8], uint32_t row, uint32_t block, uint32_t lane, TileWords& a) {
    const uint32_t piece = block * 4 + lane / 16;
    ptx::load_matrices(a[0], ptx::shared_address(&rows[row][Stage::place(row, piece)]));
    ptx::load_matrices(a[1], ptx::shared_address(&rows[row][Stage::place(row, piece + 2)]));
  }
};

// Packed: quants and scales of a pair, one behind the other.
template <uint32_t kQuantPieces, typename Scales>
struct PackedStage {
  uint4 quants[kQuantPieces][kLanes];
  Scales scales[8];  // of g
};
template <typename Stage>
struct PackedPlace {
  const Stage* from;
  __device__ PackedPlace(const FewWeight& weight, uint32_t pairs, uint32_t tile, uint32_t pair, uint32_t) {
    const uint64_t group = tile / kGroupTiles;
    from = static_cast<const Stage*>(weight.data) + (group * pairs + pair) * kGroupTiles + tile % kGroupTiles;
  }
  __device__ void advance(uint32_t pairs) { from += pairs * kGroupTiles; }
  __device__ void copy(Stage& to, uint32_t lane) const {
#pragma unroll
    for (uint32_t i = 0; i < sizeof(Stage::quants) / sizeof(Stage::quants[0]); ++i) {
      copy_ahead(&to.quants[i][lane], &from->quants[i][lane]);
    }
    if (lane % 4 == 0) copy_ahead(&to.scales[lane / 4], &from->scales[lane / 4]);
  }
};

// 0x4300 + n is 128 + n for n below 128; 0xC300 is -128, 0xC380 is -256: low seven bits, and the sign's part.
struct ByteCoding {
  static constexpr bool kHasRest = true, kHasScale = true, kHasMinimum = false;
  using Stage = PackedStage<2, uint2>;
  using Place = PackedPlace<Stage>;
  static __device__ void decode(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a, TileWords& rest) {
    const uint4 quants = stage.quants[block][lane];
    const uint32_t rows[2][2] = {{quants.x, quants.z}, {quants.y, quants.w}};
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t product = i / 4, word = rows[product][i % 2] >> i / 2 % 2 * 8;
      a[product][i % 4] = put_on(word, 0x007F007Fu, 0x43004300u);
      rest[product][i % 4] = put_on(word, 0x00800080u, 0xC300C300u);
    }
  }
  static __device__ float2 scale(const Stage& stage, uint32_t block, uint32_t lane) {
    return __half22float2(reinterpret_cast<const __half2*>(&stage.scales[lane / 4])[block]);
  }
};

template <bool HasMinimum>
struct NibbleCoding {
  static constexpr bool kHasRest = false, kHasScale = true, kHasMinimum = HasMinimum;
  static constexpr uint32_t kZero = HasMinimum ? 0 : 8;
  using Stage = PackedStage<1, std::conditional_t<HasMinimum, uint4, uint2>>;
  using Place = PackedPlace<Stage>;
  static __device__ void decode(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a, TileWords&) {
    decode_less<kZero>(stage, block, lane, a);
  }
  // Less kLess, exactly: 128 + n, less 128 + kLess.
  template <uint32_t kLess>
  static __device__ void decode_less(const Stage& stage, uint32_t block, uint32_t lane, TileWords& a) {
    constexpr uint32_t kBoth = 0x43004300u | kLess * 0x10001u;
    const uint2 quants = reinterpret_cast<const uint2*>(&stage.quants[0][lane])[block];
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t row = i % 2 == 0 ? quants.x : quants.y;
      a[i / 4][i % 4] = less(put_on(row >> 4 * (i / 2), 0x000F000Fu, 0x43004300u), kBoth);
    }
  }
  static __device__ float2 scale(const Stage& stage, uint32_t block, uint32_t lane) {
    return __half22float2(reinterpret_cast<const __half2*>(&stage.scales[lane / 4])[block]);
  }
  static __device__ float2 minimum(const Stage& stage, uint32_t block, uint32_t lane) {
    return __half22float2(reinterpret_cast<const __half2*>(&stage.scales[lane / 4])[2 + block]);
  }
};

// A number, rounded to BF16, twice in a word.
__device__ __forceinline__ uint32_t twice(float value) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(word) : "f"(value));
  return word;
}

static_assert(sizeof(ByteCoding::Stage) == packed_bytes(Coding::kQ8));
static_assert(sizeof(NibbleCoding<false>::Stage) == packed_bytes(Coding::kQ4));
static_assert(sizeof(NibbleCoding<true>::Stage) == packed_bytes(Coding::kQ4Min));

// The words of a block as the numbers that they stand for: integers times their scale, both rounded to BF16.
template <typename Coding>
__device__ __forceinline__ void decode_scaled(const typename Coding::Stage& stage, uint32_t block, uint32_t lane,
                                              TileWords& a) {
  if constexpr (!Coding::kHasScale) {
    TileWords none;
    Coding::decode(stage, block, lane, a, none);
  } else {
    const float2 scale = Coding::scale(stage, block, lane);
    const uint32_t scales[2] = {twice(scale.x), twice(scale.y)};
    uint32_t added[2] = {kNothing, kNothing};
    TileWords rest;
    if constexpr (Coding::kHasMinimum) {
      // Integers around 0, and what is left of the minimum then: to round the minimum itself would cost what it cancels.
      const float2 minimum = Coding::minimum(stage, block, lane);
      added[0] = twice(minimum.x + 8 * scale.x), added[1] = twice(minimum.y + 8 * scale.y);
      Coding::template decode_less<8>(stage, block, lane, a);
    } else {
      Coding::decode(stage, block, lane, a, rest);
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      // The rest is a power of two: its product is exact, and the sum is rounded once.
      if constexpr (Coding::kHasRest) added[i % 2] = product(rest[i / 4][i % 4], scales[i % 2], kNothing);
      a[i / 4][i % 4] = product(a[i / 4][i % 4], scales[i % 2], added[i % 2]);
    }
  }
}

// Calls `run` with the coding, a value of its type.
template <typename Run>
cudaError_t with_coding(Coding coding, const Run& run) {
  switch (coding) {
    case Coding::kNone:
      break;
    case Coding::kDense:
      return run(DenseCoding());
    case Coding::kQ8:
      return run(ByteCoding());
    case Coding::kQ4:
      return run(NibbleCoding<false>());
    case Coding::kQ4Min:
      return run(NibbleCoding<true>());
  }
  return cudaErrorInvalidValue;
}

}  // namespace headwater::backend::cuda
