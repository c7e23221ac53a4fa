// A tile of a weight times a few rows, by one block of threads. Roofline: docs/kernels/products-cuda.md. The weight's bytes at the
// rate of memory; all else has to fit beside that.
//
// A block has one tile of 16 rows of the weight; its warps take every eighth pair of blocks of 32 columns and their sums are added in
// the end, in their order: the bits of a token's outputs depend on the token and the weight alone.
//
//   m16n8k16 products: A = the tile, 16 rows x 16 columns; B = x, 16 columns x 8 tokens.
//   Lane (g, t), g = lane / 4, t = lane % 4, holds columns 8 t to 8 t + 7 of a block for rows g, g + 8 and token g: any order of
//   columns will do if both operands have the same, and so each lane reads 16 bytes in a row. The first product of a block takes
//   the first four of these columns, the second the others.
//
// Integers become BF16 exactly, so their scales are applied to the sums of a block: scale * sum(q x). A minimum adds
// minimum * sum(x), and sum(x) is a product with ones.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/products/few.h"

namespace headwater::backend::cuda {

inline constexpr uint32_t kFewWarps = 8, kLanes = 32, kFewThreads = kFewWarps * kLanes;
inline constexpr uint32_t kTokensTile = 8;

struct Sums {  // of rows g, g + 8 and tokens 2 t, 2 t + 1
  float of[4] = {};
};

__device__ __forceinline__ void multiply(Sums& sums, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums.of[0]), "+f"(sums.of[1]), "+f"(sums.of[2]), "+f"(sums.of[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t less(uint32_t a, uint32_t b) {  // pairs of BF16
  uint32_t difference;
  constexpr uint32_t kMinusOnes = 0xBF80BF80u;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(b), "r"(kMinusOnes), "r"(a));
  return difference;
}

// Weights are read once: they need not push x out of the caches.
template <typename T>
__device__ __forceinline__ T load_once(const T* from) {
  return __ldcs(from);
}

// Two bytes of a word as BF16. 0x4300 + n is 128 + n for n below 128, and 0x4380 is 256: low seven bits and sign apart.
__device__ __forceinline__ uint32_t bytes_pair(uint32_t word, uint32_t selector) {
  const uint32_t wide = __byte_perm(word, 0, selector);
  return less((wide & 0x007F007Fu) | 0x43004300u, (wide & 0x00800080u) | 0x43004300u);
}
inline constexpr uint32_t kLowBytes = 0x4140, kHighBytes = 0x4342;

struct DenseCoding {
  static constexpr uint32_t kAhead = 4, kAheadOfTwo = 4;  // blocks on their way, for one or two tiles of tokens
  static constexpr bool kHasScale = false, kHasMinimum = false;
  struct Raw {
    uint4 row, row_8;
  };
  static __device__ Raw load(const FewWeight& weight, uint32_t blocks, uint32_t tile, uint32_t block, uint32_t lane) {
    const uint64_t stride = uint64_t{blocks} * kBlockColumns;
    const auto* from = static_cast<const __nv_bfloat16*>(weight.quants) + (tile * kTileRows + lane / 4) * stride +
                       block * kBlockColumns + lane % 4 * 8;
    return {load_once(reinterpret_cast<const uint4*>(from)),
            load_once(reinterpret_cast<const uint4*>(from + 8 * stride))};
  }
  static __device__ void decode(const Raw& raw, uint32_t (&a)[2][4]) {
    a[0][0] = raw.row.x, a[0][1] = raw.row_8.x, a[0][2] = raw.row.y, a[0][3] = raw.row_8.y;
    a[1][0] = raw.row.z, a[1][1] = raw.row_8.z, a[1][2] = raw.row.w, a[1][3] = raw.row_8.w;
  }
};

struct ByteCoding {
  static constexpr uint32_t kAhead = 6, kAheadOfTwo = 4;
  static constexpr bool kHasScale = true, kHasMinimum = false;
  struct Raw {
    uint4 quants;
    __half2 scale;
  };
  static __device__ Raw load(const FewWeight& weight, uint32_t blocks, uint32_t tile, uint32_t block, uint32_t lane) {
    const uint64_t at = uint64_t{tile} * blocks + block;
    return {load_once(static_cast<const uint4*>(weight.quants) + at * kLanes + lane),
            load_once(static_cast<const __half2*>(weight.scales) + at * 8 + lane / 4)};
  }
  static __device__ void decode(const Raw& raw, uint32_t (&a)[2][4]) {
    const uint32_t rows[2][2] = {{raw.quants.x, raw.quants.z}, {raw.quants.y, raw.quants.w}};
#pragma unroll
    for (uint32_t product = 0; product < 2; ++product) {
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        a[product][half] = bytes_pair(rows[product][half], kLowBytes);
        a[product][2 + half] = bytes_pair(rows[product][half], kHighBytes);
      }
    }
  }
};

template <bool HasMinimum>
struct NibbleCoding {
  static constexpr uint32_t kAhead = 8, kAheadOfTwo = 4;
  static constexpr bool kHasScale = true, kHasMinimum = HasMinimum;
  struct Raw {
    uint2 quants;
    __half2 scale, minimum;
  };
  static __device__ Raw load(const FewWeight& weight, uint32_t blocks, uint32_t tile, uint32_t block, uint32_t lane) {
    const uint64_t at = uint64_t{tile} * blocks + block;
    const auto* scales = static_cast<const __half2*>(weight.scales) + at * 8 * (HasMinimum ? 2 : 1) + lane / 4;
    Raw raw{load_once(static_cast<const uint2*>(weight.quants) + at * kLanes + lane), load_once(scales), {}};
    if constexpr (HasMinimum) raw.minimum = load_once(scales + 8);
    return raw;
  }
  static __device__ uint32_t pair(uint32_t word, uint32_t index) {  // 128 + n, less 128 or 136
    constexpr uint32_t kZero = HasMinimum ? 0x43004300u : 0x43084308u;
    return less((word >> 4 * index & 0x000F000Fu) | 0x43004300u, kZero);
  }
  static __device__ void decode(const Raw& raw, uint32_t (&a)[2][4]) {
#pragma unroll
    for (uint32_t product = 0; product < 2; ++product) {
#pragma unroll
      for (uint32_t part = 0; part < 2; ++part) {
        a[product][2 * part] = pair(raw.quants.x, 2 * product + part);
        a[product][2 * part + 1] = pair(raw.quants.y, 2 * product + part);
      }
    }
  }
};

// The columns of one lane of a block of x, for each eight tokens. Source: row(i), the address of token i's row of x.
template <uint32_t TokenTiles>
struct Columns {
  uint4 of[TokenTiles];

  template <typename Source>
  __device__ void load(const Source& x, uint32_t tokens, uint32_t block, uint32_t lane) {
#pragma unroll
    for (uint32_t tile = 0; tile < TokenTiles; ++tile) {
      const uint32_t token = tile * kTokensTile + lane / 4;
      of[tile] = uint4{};
      if (token < tokens) {
        of[tile] = *reinterpret_cast<const uint4*>(x.row(token) + block * kBlockColumns + lane % 4 * 8);
      }
    }
  }
};

// sums += the products of one block.
template <typename Coding, uint32_t TokenTiles>
__device__ __forceinline__ void add_block(const typename Coding::Raw& raw, const Columns<TokenTiles>& x,
                                          Sums (&sums)[TokenTiles]) {
  uint32_t a[2][4];
  Coding::decode(raw, a);
#pragma unroll
  for (uint32_t tile = 0; tile < TokenTiles; ++tile) {
    const uint32_t b[2][2] = {{x.of[tile].x, x.of[tile].y}, {x.of[tile].z, x.of[tile].w}};
    if constexpr (!Coding::kHasScale) {
      multiply(sums[tile], a[0], b[0]);
      multiply(sums[tile], a[1], b[1]);
    } else {
      Sums block;
      multiply(block, a[0], b[0]);
      multiply(block, a[1], b[1]);
      const float2 scale = __half22float2(raw.scale);
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) sums[tile].of[i] += (i < 2 ? scale.x : scale.y) * block.of[i];
      if constexpr (Coding::kHasMinimum) {
        constexpr uint32_t kOnes[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
        Sums of_x;
        multiply(of_x, kOnes, b[0]);
        multiply(of_x, kOnes, b[1]);
        const float2 minimum = __half22float2(raw.minimum);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) sums[tile].of[i] += (i < 2 ? minimum.x : minimum.y) * of_x.of[i];
      }
    }
  }
}

// Of one tile of a weight with up to TokenTiles * 8 tokens, by all warps of a block: store(token, row, sum), of the tile's rows.
template <typename Coding, uint32_t TokenTiles, typename Source, typename Store>
__device__ __forceinline__ void multiply_tile(const FewWeight& weight, uint32_t blocks, uint32_t tile, const Source& x,
                                              uint32_t tokens, const Store& store) {
  constexpr uint32_t kTokens = TokenTiles * kTokensTile;
  __shared__ float all[kFewWarps][kTokens][kTileRows + 1];
  const uint32_t warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  // On their way: blocks of the weight, and the columns of x that they meet, which come from the L2 and take nearly as long.
  constexpr uint32_t kAhead = TokenTiles == 1 ? Coding::kAhead : Coding::kAheadOfTwo;
  Sums sums[TokenTiles];
  typename Coding::Raw raw[kAhead];
  Columns<TokenTiles> columns[kAhead];
  // The warp's blocks, two neighbours at a time: 128 bytes of each row of a dense matrix.
  const auto own = [&](uint32_t i) { return (i / 2 * kFewWarps + warp) * 2 + i % 2; };
  const auto load = [&](uint32_t slot, uint32_t block) {
    if (block >= blocks) return;
    raw[slot] = Coding::load(weight, blocks, tile, block, lane);
    columns[slot].load(x, tokens, block, lane);
  };
#pragma unroll
  for (uint32_t i = 0; i < kAhead; ++i) load(i, own(i));
  for (uint32_t first = 0; own(first) < blocks; first += kAhead) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (own(first + i) < blocks) add_block<Coding, TokenTiles>(raw[i], columns[i], sums);
      load(i, own(first + i + kAhead));
    }
  }
  __syncthreads();  // the sums of a call before are read
#pragma unroll
  for (uint32_t t = 0; t < TokenTiles; ++t) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      all[warp][t * kTokensTile + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[t].of[i];
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kTokens * kTileRows; i += kFewThreads) {
    const uint32_t token = i / kTileRows, row = i % kTileRows;
    if (token >= tokens) break;
    float sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < kFewWarps; ++w) sum += all[w][token][row];
    store(token, tile * kTileRows + row, sum);
  }
}

__device__ __forceinline__ void store_to(const Rows& out, uint64_t row, uint32_t column, float value) {
  const uint64_t at = row * out.stride + column;
  if (out.is_short) {
    static_cast<__nv_bfloat16*>(out.data)[at] = from_float<__nv_bfloat16>(value);
  } else {
    static_cast<float*>(out.data)[at] = value;
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
