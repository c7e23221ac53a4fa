// A weight as the product kernels read it: the file's own bytes, reordered so that vector lanes are output features.
//
// Sixteen consecutive rows (output features) form a group; the last one is padded with zeros. A group holds, in order,
//
//   plain types   values   [columns][16]
//   Q8_0          scales   [blocks] of d[16]              bytes    [blocks][8][16][4], each q + 128
//   Q4_0          scales   [blocks] of d[16]              nibbles  [blocks][4][16][4]
//   Q4_1          scales   [blocks] of d[16], m[16]       nibbles  [blocks][4][16][4]
//   other types   the file's own rows; a product decodes a group to what F32 would hold (products.h)
//
// where a block is 32 columns and scales stay f16. A 64-byte vector is thus 16 features x 4 consecutive columns, what
// one byte dot product (VPDPBUSD) takes:
//
//   bytes j of a block      feature:   0             1                  15
//                                      k k+1 k+2 k+3 k k+1 k+2 k+3 ...  k k+1 k+2 k+3      k = 4 j
//   nibbles j of a block    the same with k = 4 j in the low halves and k = 16 + 4 j in the high halves
//
// Scales and values begin at multiples of 64 bytes. The size is the file's plus padding.
#pragma once

#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/step_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/weight_memory.h"
#include "ops/backend.h"

namespace headwater::backend::cpu {

class PackedWeight final : public ops::Weight {
 public:
  // Copies and reorders `view`, which is not needed afterwards. kInvalidArgument: no rows or columns, or a row that is
  // not whole blocks.
  static Result<std::unique_ptr<PackedWeight>> create(const ops::WeightView& view, ThreadPool& pool,
                                                      WeightMemory& memory);

  uint32_t groups() const { return static_cast<uint32_t>((rows() + kGroupFeatures - 1) / kGroupFeatures); }
  uint64_t group_bytes() const { return group_bytes_; }
  const uint8_t* group(uint64_t index) const {
    return reinterpret_cast<const uint8_t*>(memory_.data) + index * group_bytes_;
  }
  bool has_kernel() const { return cpu::has_kernel(dtype()); }
  bool is_quantized() const { return has_kernel() && block_elements(dtype()) > 1; }  // its products quantise x

  // out: [columns]; the same values as dequantize_row() of the original row.
  void dequantize(uint64_t row, float* out) const;
  // out: [columns][16], the values of a group whose type has no kernel; zeros beyond the last row.
  void decode_group(uint64_t index, float* out) const;

 private:
  PackedWeight(const ops::WeightView& view, uint64_t group_bytes, WeightMemory::Piece memory)
      : Weight(view.rows, view.columns, view.dtype), group_bytes_(group_bytes), memory_(std::move(memory)) {}
  void pack_group(const ops::WeightView& view, uint64_t index);
  void dequantize_blocks(uint64_t row, float* out) const;

  uint64_t group_bytes_;
  WeightMemory::Piece memory_;
};

}  // namespace headwater::backend::cpu
