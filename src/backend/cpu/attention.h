// Host side of the CPU's attention: turns a step's plan into tasks for the thread pool, one a (KV head, work item) and
// one a token to merge. KV heads are the outer loop, so that pages which several items read stay in the cache between
// them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "backend/cpu/attention_costs.h"
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/kv_pages.h"
#include "backend/cpu/targets.h"
#include "backend/cpu/thread_pool.h"
#include "ops/ops.h"

namespace headwater::backend::cpu {

class Attention {
 public:
  Attention(Target target, ThreadPool& pool);

  attention::CostModel cost_model(const ops::KvShape& shape, uint32_t q_heads) const;
  void use_costs(const AttentionCosts& costs) { costs_ = costs; }  // in place of the built-in ones

  // Scratch for steps up to these limits; may be called again with other limits or shapes and keeps the largest of
  // each.
  Status reserve(const ops::StepLimits& limits, const ops::KvShape& shape, uint32_t q_heads);

  // As ops::Backend describes them. Nothing allocates; all return when done.
  void attend(const ops::AttentionParams& params);
  void merge(const ops::AttentionParams& params);
  void rope_append(const ops::RopeAppendParams& params);

  uint64_t take_kv_bytes_read();  // 0 in release builds

 private:
  struct Worker {
    AttendScratch scratch{};
    Buffer memory;
  };
  struct ScratchBytes {  // of one worker, the largest of every reserve()
    uint64_t q = 0, lse2 = 0, sums = 0, tail = 0, wide = 0, scales = 0;
  };
  // Angles of an earlier rope_append: the layers of a step share them.
  struct Angles {
    Buffer memory;  // [tokens][2][dims]
    ops::RopeStyle style{};
    float scale = 0;
    std::vector<uint32_t> positions;
    std::vector<float> inverse_frequencies;
    bool are_of(const ops::DeviceBatch& batch, const ops::Rope& rope) const;
  };

  AttendCall call_of(const ops::AttentionParams& params) const;
  void fill(Angles& angles, const ops::DeviceBatch& batch, const ops::Rope& rope);
  const float* angles_of(const ops::DeviceBatch& batch, const ops::Rope& rope);

  const Target target_;
  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  AttentionCosts costs_;
  std::vector<Worker> workers_;
  ScratchBytes largest_;
  std::array<Angles, 2> angles_;  // the last used first; a model has two kinds where its layers alternate
  Buffer partial_values_;
  Buffer partial_lse2_;
};

}  // namespace headwater::backend::cpu
