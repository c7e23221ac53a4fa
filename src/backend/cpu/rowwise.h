// Operations on rows of activations, spread over the threads where there is enough work.
#pragma once

#include <algorithm>

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
  void gate_mul(const ops::GateMulParams& params);
  void cap_logits(const ops::CapLogitsParams& params);
  void gather_rows(const ops::GatherRowsParams& params);

  // f(row) for every row, a task for every few thousand values.
  template <typename F>
  void for_rows(uint32_t rows, uint32_t columns, F&& f) {
    const uint32_t rows_per_task = std::max(1u, kTaskValues / std::max(1u, columns));
    pool_.run((rows + rows_per_task - 1) / rows_per_task, [&](uint32_t task, uint32_t) {
      const uint32_t end = std::min(rows, (task + 1) * rows_per_task);
      for (uint32_t row = task * rows_per_task; row < end; ++row) f(row);
    });
  }

 private:
  static constexpr uint32_t kTaskValues = 1 << 13;  // a task of fewer values costs less than handing it out

  const StepKernels& kernels_;
  ThreadPool& pool_;
};

}  // namespace headwater::backend::cpu
