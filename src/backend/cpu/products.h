// Matrix products: quantises the activations once, then spreads groups of weight features over the threads.
#pragma once

#include "backend/cpu/packed_weight.h"
#include "backend/cpu/step_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "ops/backend.h"

namespace headwater::backend::cpu {

class Products {
 public:
  Products(const StepKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Makes room for quantised activations of this many rows and columns (never fewer than before), and for a decoded group of
  // weights a worker: of `columns`, or, for weights that have no kernel, of decoded_columns.
  Status reserve(uint32_t rows, uint64_t columns, uint64_t decoded_columns = 0);

  // Weights are PackedWeights. The products' features, taken together, are cut in tasks of whole groups.
  void run(const ops::MatmulParams& params);

 private:
  void quantize(const ops::Matrix& x);
  void run_groups(const ops::Matrix& x, const ops::Product& product, uint32_t begin, uint32_t end,
                  uint32_t worker) const;
  ProductTask task_of(const ops::Matrix& x, const ops::Product& product, uint32_t begin, uint32_t end) const;

  const StepKernels& kernels_;
  ThreadPool& pool_;
  Buffer panels_;   // PanelBlock [ceil(rows / 16)][columns / 32]
  Buffer scratch_;  // a ProductScratch, or a decoded group [columns][16], a worker
  uint64_t scratch_blocks_ = 0;
  uint64_t scratch_worker_bytes_ = 0;
};

}  // namespace headwater::backend::cpu
