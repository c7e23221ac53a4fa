// The operations beside attention, in plain loops: f32 in and out, double inside.
#pragma once

#include <vector>

#include "backend/reference/pool.h"
#include "ops/backend.h"

namespace headwater::backend::reference {

// The model file's own rows, dequantised where they are used.
class ViewWeight final : public ops::Weight {
 public:
  explicit ViewWeight(const ops::WeightView& view) : Weight(view.rows, view.columns, view.dtype), data_(view.data) {}
  void load_row(uint64_t row, float* out) const {
    dequantize_row(dtype(), data_ + row * row_bytes(dtype(), columns()), columns(), out);
  }

 private:
  const std::byte* data_;
};

void embed(const ops::EmbedParams& params);
void add_norm(const ops::AddNormParams& params);
void rope_append(const ops::RopeAppendParams& params);
void gate_mul(const ops::GateMulParams& params);
void cap_logits(const ops::CapLogitsParams& params);
void gather_rows(const ops::GatherRowsParams& params);

// Splits the rows of a weight over threads: each output is one dot product in one order, whoever computes it.
class Matmul {
 public:
  explicit Matmul(uint32_t threads) : scratch_(threads) {}
  void run(const ops::MatmulParams& params);

 private:
  struct Scratch {
    std::vector<float> loaded;
    std::vector<double> weight;
  };
  void run_rows(const ops::MatmulParams& params, const ops::Product& product, uint64_t begin, uint64_t end,
                Scratch& scratch) const;

  std::vector<double> x_;         // [T, k]
  std::vector<Scratch> scratch_;  // one a thread
};

}  // namespace headwater::backend::reference
