// What the processor reaches on the primitives of attention, measured on all workers at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/targets.h"
#include "backend/cpu/thread_pool.h"
#include "ops/backend.h"

namespace headwater::backend::cpu {

inline constexpr uint32_t kPeakKeys = 64;
inline constexpr uint32_t kPeakWidth = 64;
inline constexpr uint32_t kPeakRowKeys = 256;
inline constexpr uint32_t kPeakScores = 4 * kPeakRowKeys;

struct PeakBuffers {   // of one worker, all in L1
  std::byte* keys;     // [kPeakKeys / 16][kPeakWidth / 2][16][2] bf16; bytes for byte_dots
  std::byte* factors;  // [kRowsTileMax][kPeakWidth], or [kPeakScores] weights
  float* scores;       // [kRowsTileMax][kPeakKeys]
};

struct PeakKernels {
  uint32_t rows_tile;  // rows of a full pass
  void (*dots)(const PeakBuffers& buffers, uint32_t rows, uint32_t repeats);
  void (*weights)(const PeakBuffers& buffers, uint32_t repeats);
  uint32_t byte_multiply_adds;  // of a repeat of byte_dots
  void (*byte_dots)(const PeakBuffers& buffers, uint32_t repeats);
  float (*read)(const std::byte* data, uint64_t bytes);
};

extern const PeakKernels kPeaksScalar;
extern const PeakKernels kPeaksAvx2;
extern const PeakKernels kPeaksAvx512;
extern const PeakKernels kPeaksAvx512Bf16;
extern const PeakKernels kPeaksAvx512Amx;

// group: rows of a flat decode item for one KV head.
ops::Peaks measure_peaks(Target target, ThreadPool& pool, uint32_t group);

}  // namespace headwater::backend::cpu
