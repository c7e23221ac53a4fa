// ops::Backend::matmul() on the device: which kind of product (few.h, batch.h, dense.h) and with what operands.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "backend/cuda/products/dense.h"
#include "backend/cuda/products/few.h"
#include "backend/cuda/products/weight.h"

namespace headwater::backend::cuda {

FewWeight few_weight(const CudaWeight& weight, const float* bias);

enum class Way : uint8_t { kFew, kBatch, kDense };

class Products {
 public:
  static Result<Products> create(bool is_invariant);

  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView& view, const Stream& stream);
  // What activations that feed products are best kept in: BF16, unless all weights are F32.
  DType operand_type() const { return has_short_ || !has_f32_ ? DType::kBF16 : DType::kF32; }
  // Room to convert operands of steps of up to `tokens`. Here or at prepare(), never in a step, memory is taken.
  Status reserve(uint32_t tokens);
  Status run(const ops::MatmulParams& params, cudaStream_t stream);
  // As one launch, or false: only room is written, since it is none or would be slower than its parts.
  Result<bool> run_gated(const ops::GatedMatmulParams& params, cudaStream_t stream);
  bool has_few() const { return has_few_; }  // whether the device takes the product of few rows, and so that of experts
  // From now on this way where it can be gone, instead of the fastest: for tests and benches.
  void keep_to(Way way) { kept_to_ = way; }
  // x as BF16 (or F32) of a weight's padded width; converted into scratch, until the next call, where it is something else.
  Result<ops::Matrix> operand(const ops::Matrix& x, uint32_t columns_padded, bool is_short, cudaStream_t stream);

 private:
  Products(DenseProducts dense, bool is_invariant, bool has_few, bool has_batch)
      : dense_(std::move(dense)), is_invariant_(is_invariant), has_few_(has_few), has_batch_(has_batch) {}
  Status grow();
  bool can_go(Way way, const ops::Matrix& x, bool is_short) const;
  // The fastest way; measured at the first call of a size, which waits for the stream.
  Result<Way> way_of(const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream);
  Status run(Way way, const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream);
  Status run_packed(Way way, const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream);
  Status run_dense(const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream);

  // Rows of all products, columns, coding, rows of x as steps are recorded with them (ops::recorded_rows()), whether exactly so many.
  using Size = std::tuple<uint64_t, uint64_t, Coding, uint32_t, bool>;

  DenseProducts dense_;
  std::map<Size, Way> ways_;
  std::optional<Way> kept_to_;
  bool is_invariant_, has_few_, has_batch_;
  WeightMemory memory_;
  bool has_short_ = false, has_f32_ = false;
  uint32_t tokens_max_ = 0, columns_max_ = 0, rows_max_f32_ = 0;
  DeviceBuffer x_, out_;  // operands converted: x of a weight's type, outputs of F32 weights before they are shortened
};

}  // namespace headwater::backend::cuda
