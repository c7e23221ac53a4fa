// Tiles of a weight times a few rows. Roofline: docs/kernels/products-cuda.md. The weight's bytes at the rate of memory; all else
// has to fit beside that.
//
// A block of threads makes passes: in each it multiplies a tile of 16 rows of the weight. Its warps take pairs of blocks of 32
// columns in turn and their sums are added in the end, in their order: the bits of a token's outputs depend on the token, the
// weight and kTokens alone.
//
//   m16n8k16 products: A = the tile, 16 rows x 16 columns; B = x, 16 columns x 8 tokens.
//
// Each warp copies what it will read, of the weight and of x, to a place of its own in shared memory, some pairs ahead and without a
// pause between passes; so no warp waits for another but at a pass's end. Two blocks of threads fill a multiprocessor's
// shared memory: those of the next product come when these go, so that no multiprocessor has more of them than others.
//
// Integers become BF16 exactly, so their scales are applied to the sums of a block: scale * sum(q x). A minimum adds
// minimum * sum(x), and sum(x) is a product with ones.
#pragma once

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products/few_codings.cuh"

namespace headwater::backend::cuda {

inline constexpr uint32_t kTokensTile = 8;
// Of a block that multiplies up to kTokens tokens. With one, all there is to do is to decode; with more the shared memory of more
// warps would hold too few pairs of each.
template <uint32_t kTokens>
inline constexpr uint32_t kFewWarps = kTokens == 1 ? 16 : 8;
template <uint32_t kTokens>
inline constexpr uint32_t kFewThreads = kFewWarps<kTokens>* kLanes;

struct Sums {  // of rows g, g + 8 and tokens 2 t, 2 t + 1
  float of[4] = {};
};

__device__ __forceinline__ void multiply(Sums& sums, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums.of[0]), "+f"(sums.of[1]), "+f"(sums.of[2]), "+f"(sums.of[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void end_stage() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <uint32_t kBehind>  // stages that may still be on their way
__device__ __forceinline__ void wait_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kBehind) : "memory");
}

// Up to kTokens tokens: 1, or a multiple of eight.
template <uint32_t kTokens>
struct FewColumns {  // of a pair, in pieces of eight: of a block piece p of token i of a tile at 8 p + i
  static constexpr uint32_t kTiles = (kTokens + kTokensTile - 1) / kTokensTile;
  static constexpr uint32_t kTileTokens = kTokens == 1 ? 1 : kTokensTile;
  uint4 of[kTiles][2][4 * kTileTokens];
  // By lanes: piece lane % 4 of token lane / 4.
  static __device__ uint32_t place(uint32_t lane) { return lane % 4 * kTileTokens + lane / 4; }
  // Right operands of a block's two products. Of tokens that are not there they are anything, and so are their sums.
  __device__ void read(uint32_t tile, uint32_t block, uint32_t lane, uint32_t (&b)[4]) const {
    ptx::load_matrices(b, ptx::shared_address(&of[tile][block][kTokens == 1 ? lane / 8 : lane]));
  }
};

template <typename Coding, uint32_t kTokens>
struct FewStage {
  typename Coding::Stage weight;
  FewColumns<kTokens> x;
};

// In dynamic shared memory.
template <typename Coding, uint32_t kTokens>
struct FewShared {
  static constexpr uint32_t kWarps = kFewWarps<kTokens>;
  static constexpr uint32_t kSumsBytes = kWarps * kTokens * (kTileRows + 1) * sizeof(float);
  static constexpr uint32_t kStages = (kFewSharedBytes - kSumsBytes) / (kWarps * sizeof(FewStage<Coding, kTokens>));
  static_assert(kStages >= 3);
  FewStage<Coding, kTokens> stages[kWarps][kStages];
  float sums[kWarps][kTokens][kTileRows + 1];
};

// What a warp copies, pair by pair and pass by pass.
template <typename Coding, uint32_t kTokens, typename Passes>
class FewCopies {
 public:
  using Stage = FewStage<Coding, kTokens>;
  using Columns = FewColumns<kTokens>;

  __device__ FewCopies(const Passes& passes, uint32_t pairs, uint32_t own_pairs, uint32_t warp, uint32_t lane)
      : passes_(passes), pairs_(pairs), own_pairs_(own_pairs), warp_(warp), lane_(lane), place_(at(passes.at(0))) {
    begin(0);
  }
  __device__ void begin(uint32_t pass) {
    pass_ = own_pairs_ > 0 ? pass : passes_.count;
    if (pass_ < passes_.count) find();
  }
  __device__ void weight(Stage& to) const {
    if (left_ > 0) place_.copy(to.weight, lane_);
  }
  __device__ void x(Stage& to) const {
#pragma unroll
    for (uint32_t tile = 0; tile < Columns::kTiles; ++tile) {
      if (left_ == 0 || tile * kTokensTile + lane_ / 4 >= tokens_) continue;
#pragma unroll
      for (uint32_t block = 0; block < 2; ++block) {
        copy_ahead(&to.x.of[tile][block][Columns::place(lane_)], x_[tile] + block * kBlockColumns);
      }
    }
    end_stage();
  }
  __device__ void advance() {
    if (left_ == 0) return;
    if (--left_ > 0) {
      place_.advance(kFewWarps<kTokens>);
#pragma unroll
      for (uint32_t tile = 0; tile < Columns::kTiles; ++tile) x_[tile] += kFewWarps<kTokens> * kPairColumns;
    } else if (++pass_ < passes_.count) {
      find();
    }
  }

 private:
  template <typename Pass>
  __device__ typename Coding::Place at(const Pass& pass) const {
    return typename Coding::Place(*pass.weight, pairs_, pass.tile, warp_, lane_);
  }
  __device__ void find() {
    const auto pass = passes_.at(pass_);
    left_ = own_pairs_;
    tokens_ = pass.tokens;
    place_ = at(pass);
#pragma unroll
    for (uint32_t tile = 0; tile < Columns::kTiles; ++tile) {
      const uint32_t token = min(tile * kTokensTile + lane_ / 4, tokens_ - 1);
      x_[tile] = pass.x.row(token) + warp_ * kPairColumns + lane_ % 4 * 8;
    }
  }

  const Passes& passes_;
  const uint32_t pairs_, own_pairs_, warp_, lane_;
  uint32_t pass_ = 0, left_ = 0;  // pairs of the pass
  uint32_t tokens_ = 0;
  typename Coding::Place place_;
  const __nv_bfloat16* x_[Columns::kTiles];
};

// sums += the products of a pair.
template <typename Coding, uint32_t kTokens>
__device__ __forceinline__ void add_pair(const FewStage<Coding, kTokens>& stage, uint32_t lane,
                                         Sums (&sums)[FewColumns<kTokens>::kTiles]) {
#pragma unroll
  for (uint32_t block = 0; block < 2; ++block) {
    TileWords a, rest;
    Coding::decode(stage.weight, block, lane, a, rest);
#pragma unroll
    for (uint32_t tile = 0; tile < FewColumns<kTokens>::kTiles; ++tile) {
      uint32_t words[4];
      stage.x.read(tile, block, lane, words);
      const uint32_t b[2][2] = {{words[0], words[1]}, {words[2], words[3]}};
      if constexpr (!Coding::kHasScale) {
        multiply(sums[tile], a[0], b[0]);
        multiply(sums[tile], a[1], b[1]);
      } else {
        Sums of_block;
        multiply(of_block, a[0], b[0]);
        multiply(of_block, a[1], b[1]);
        if constexpr (Coding::kHasRest) {
          multiply(of_block, rest[0], b[0]);
          multiply(of_block, rest[1], b[1]);
        }
        const float2 scale = Coding::scale(stage.weight, block, lane);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) sums[tile].of[i] += (i < 2 ? scale.x : scale.y) * of_block.of[i];
        if constexpr (Coding::kHasMinimum) {
          constexpr uint32_t kOnes[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
          Sums of_x;
          multiply(of_x, kOnes, b[0]);
          multiply(of_x, kOnes, b[1]);
          const float2 minimum = Coding::minimum(stage.weight, block, lane);
#pragma unroll
          for (uint32_t i = 0; i < 4; ++i) sums[tile].of[i] += (i < 2 ? minimum.x : minimum.y) * of_x.of[i];
        }
      }
    }
  }
}

// All passes of a block of threads, with up to kTokens tokens each. Passes: how many (count), and at(n), what can be copied:
//   weight, tile of it; x with row(i), tokens; store(token, row of the weight, sum). at(0) is asked for even if there is none.
// kWeightsAhead: weight and tile depend on no kernel ahead, and are read before those have ended; else the caller has waited.
template <typename Coding, uint32_t kTokens, typename Passes>
__device__ __forceinline__ void multiply_passes(const Passes& passes, uint32_t pairs) {
  using Shared = FewShared<Coding, kTokens>;
  extern __shared__ __align__(16) unsigned char few_memory[];
  auto& shared = *reinterpret_cast<Shared*>(few_memory);
  const uint32_t warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  auto& stages = shared.stages[warp];
  const uint32_t own_pairs = (pairs + Shared::kWarps - 1 - warp) / Shared::kWarps;

  FewCopies<Coding, kTokens, Passes> ahead(passes, pairs, own_pairs, warp, lane);
  if constexpr (Passes::kWeightsAhead) {
    for (uint32_t s = 0; s < Shared::kStages; ++s, ahead.advance()) ahead.weight(stages[s]);
    wait_for_kernels_ahead();
    ahead.begin(0);
    for (uint32_t s = 0; s < Shared::kStages; ++s, ahead.advance()) ahead.x(stages[s]);
  } else {
    for (uint32_t s = 0; s < Shared::kStages; ++s, ahead.advance()) ahead.weight(stages[s]), ahead.x(stages[s]);
  }
  uint32_t stage = 0;
  for (uint32_t n = 0; n < passes.count; ++n) {
    const auto pass = passes.at(n);
    Sums sums[FewColumns<kTokens>::kTiles];
    for (uint32_t i = 0; i < own_pairs; ++i) {
      wait_stage<Shared::kStages - 1>();
      __syncwarp();
      add_pair<Coding, kTokens>(stages[stage], lane, sums);
      __syncwarp();
      ahead.weight(stages[stage]);
      ahead.x(stages[stage]);
      ahead.advance();
      stage = stage + 1 == Shared::kStages ? 0 : stage + 1;
    }
    __syncthreads();  // the sums of the pass before are read
#pragma unroll
    for (uint32_t tile = 0; tile < FewColumns<kTokens>::kTiles; ++tile) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t token = tile * kTokensTile + lane % 4 * 2 + i % 2;
        if (token < kTokens) shared.sums[warp][token][lane / 4 + i / 2 * 8] = sums[tile].of[i];
      }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pass.tokens * kTileRows; i += kFewThreads<kTokens>) {
      const uint32_t token = i / kTileRows, row = i % kTileRows;
      float sum = 0;
#pragma unroll
      for (uint32_t w = 0; w < Shared::kWarps; ++w) sum += shared.sums[w][token][row];
      pass.store(token, pass.tile * kTileRows + row, sum);
    }
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

// The sum of a row of a part, if it has that row.
__device__ __forceinline__ void store_sum(const FewCall::Part& part, uint32_t token, uint32_t row, float sum) {
  if (row >= part.rows) return;
  if (part.weight.bias != nullptr) sum += part.weight.bias[row];
  store_to(part.out, token, row, sum);
}

// Whether four outputs of a token whose first row is a multiple of four lie where one store can reach them.
__device__ __forceinline__ bool can_store_fours(const FewCall::Part& part) {
  return reinterpret_cast<uintptr_t>(part.out.data) % (part.out.is_short ? 8 : 16) == 0 && part.out.stride % 4 == 0;
}
// store_sum() of four rows, the first a multiple of four.
__device__ __forceinline__ void store_fours(const FewCall::Part& part, uint32_t token, uint32_t row, float4 sum) {
  if (row + 4 > part.rows || !can_store_fours(part)) {
    store_sum(part, token, row, sum.x);
    store_sum(part, token, row + 1, sum.y);
    store_sum(part, token, row + 2, sum.z);
    store_sum(part, token, row + 3, sum.w);
    return;
  }
  if (const float* const bias = part.weight.bias; bias != nullptr) {
    sum.x += bias[row], sum.y += bias[row + 1], sum.z += bias[row + 2], sum.w += bias[row + 3];
  }
  const uint64_t place = token * part.out.stride + row;
  if (part.out.is_short) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(part.out.data) + place) =
        make_uint2(pack<__nv_bfloat16>(sum.x, sum.y), pack<__nv_bfloat16>(sum.z, sum.w));
  } else {
    *reinterpret_cast<float4*>(static_cast<float*>(part.out.data) + place) = sum;
  }
}

// Allows a kernel that calls multiply_passes() its dynamic shared memory, of FewShared's size.
template <typename Coding, uint32_t kTokens, typename Call>
cudaError_t allow_passes(void (*kernel)(Call)) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(FewShared<Coding, kTokens>));
}

}  // namespace headwater::backend::cuda
