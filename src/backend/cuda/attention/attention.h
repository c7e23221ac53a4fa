// Host side of the GPU's attention: scratch, the arguments of a launch, the choice of the kernel, the planner's costs.
#pragma once

#include "backend/cuda/kv_pool.h"
#include "backend/cuda/runtime.h"
#include "ops/backend.h"

namespace headwater::backend::cuda {

class Attention {
 public:
  // is_invariant: the same bits whatever is shared and whoever is in the batch. is_alone: a DeviceClaim is held (claim.h).
  Attention(const DeviceTraits& traits, bool is_invariant, bool is_alone)
      : traits_(traits), is_invariant_(is_invariant), is_alone_(is_alone) {}

  // Scratch for steps up to these limits; keeps the largest of every call.
  Status reserve(const ops::StepLimits& limits, uint32_t q_heads, uint32_t head_dim);

  struct Step {
    const ops::DeviceBatch* batch;
    const KvPages* pages;
    uint32_t layer;
    uint32_t q_heads;
    const void* q;  // rows of float or of the pages' element type
    uint64_t q_stride;
    void* out;  // aligned to 16 bytes, its stride a multiple of 4
    uint64_t out_stride;
    bool q_is_wide, out_is_wide;  // float
    float* lse2;
    ops::AttentionVariant variant;
    uint32_t plan = 0;
  };
  // Enqueues one launch: attend and merge. kInvalidArgument for an output that is not aligned. Its blocks may wait for each
  // other: unless it is alone, it begins when all of them fit beside what runs. One at a time: they share the scratch.
  Status attend(const Step& step, cudaStream_t stream);

  // What the planner has to know of the kernel that will run.
  attention::DeviceShape device_shape(const ops::KvShape& shape, uint32_t q_heads) const;
  uint64_t take_kv_bytes_read();  // waits; 0 in release builds

 private:
  AttendCall call_of(const Step& step) const;
  bool holds(const Step& step) const;  // the scratch of the step

  DeviceTraits traits_;
  bool is_invariant_, is_alone_;
  DeviceBuffer partials_, arrived_, queue_, kv_bytes_read_;
};

}  // namespace headwater::backend::cuda
