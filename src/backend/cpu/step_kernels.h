// The table of a target's dense kernels, and the plain structs that they share with the rest of the back end.
// Included by kernel files: no templates and no inline functions here (see targets.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace headwater::backend::cpu {

enum class Target : uint8_t;

constexpr uint32_t kGroupFeatures = 16;  // output features that a weight interleaves (packed_weight.h)
constexpr uint32_t kBlockColumns = 32;   // columns that share scales
constexpr uint32_t kPanelRows = 16;      // rows of activations that are stored together

// Thirty-two columns of sixteen rows of quantised activations: x = scale * q, q in [-127, 127] rounded to nearest even
// with scale = max|x| / 127. A panel is columns / 32 of these in a row; T rows take ceil(T / 16) panels. A value that is
// not finite makes its scale NaN or infinite, so it reaches the output.
struct PanelBlock {
  int8_t q[kPanelRows][kBlockColumns];
  float scale[kPanelRows];
  float sum[kPanelRows];     // scale * sum of q: what an offset m of the weight multiplies
  int32_t bias[kPanelRows];  // -128 * sum of q: undoes the + 128 of stored bytes
};

// What a product may write of its worker's own memory: one group of a weight, decoded (byte_tiles-inl.h).
struct ProductScratch {
  int8_t* values;  // [columns / 32][8][64], aligned to 64 bytes
  float* scales;   // [columns / 32][2][16]
};

// Products of some groups of one weight with all rows.
struct ProductTask {
  const uint8_t* weight;  // the first group
  uint64_t group_bytes;
  uint32_t features;  // valid ones, counted from the first group
  uint32_t columns;
  uint32_t rows;             // T
  const PanelBlock* panels;  // for quantised weights
  const float* x;            // [T, columns] for plain weights
  uint64_t x_stride;
  const float* bias;  // [features] or null
  ProductScratch scratch;
  float* out;  // [T, features], feature 0 of the first group in column 0
  uint64_t out_stride;
};

// One row of ops::AddNormParams. All [columns].
struct AddNormRow {
  float* residual;
  const float* delta;         // or null
  const float* delta_weight;  // or null
  float delta_scale;
  const float* weight;  // or null
  float epsilon;
  uint64_t columns;
  float* out;
};

struct StepKernels {
  using Products = void (*)(const ProductTask& task);
  Products q4_0;
  Products q4_1;
  Products q8_0;
  Products f32;
  Products f16;
  Products bf16;
  // Row `row` of a panel from x: [columns], columns a multiple of 32.
  void (*quantize)(const float* x, uint64_t columns, uint32_t row, PanelBlock* panel);
  void (*add_norm)(const AddNormRow& row);
  // The activations of ops::GateMulParams. All [columns]; out may be gate.
  using GateMul = void (*)(const float* gate, const float* up, uint64_t columns, float* out);
  GateMul silu_mul;
  GateMul gelu_tanh_mul;
  GateMul swiglu_clamped_mul;
  // values = cap(scale * values), as ops::CapLogitsParams says. [columns]
  void (*cap)(float* values, float scale, float softcap, uint64_t columns);
};

const StepKernels& step_kernels(Target target);

}  // namespace headwater::backend::cpu
