// Operations on rows of activations, spread over the threads where there is enough work.
#pragma once

#include "backend/cpu/step_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "ops/backend.h"

namespace headwater::backend::cpu {

class Rowwise {
 public:
  Rowwise(const StepKernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // As ops::Backend describes them; the table is a PackedWeight.
  void embed(const ops::EmbedParams& params);
  void add_norm(const ops::AddNormParams& params);
  void silu_mul(const ops::SiluMulParams& params);
  void gather_rows(const ops::GatherRowsParams& params);

 private:
  template <typename F>
  void for_rows(uint32_t rows, uint32_t columns, F&& f);  // f(row)

  const StepKernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace headwater::backend::cpu
