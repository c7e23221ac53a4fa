// Products of many rows: cuBLASLt over the dense matrices.
#pragma once

#include <cublasLt.h>

#include <map>
#include <tuple>

#include "backend/cuda/runtime.h"
#include "backend/cuda/step/step.h"

namespace headwater::backend::cuda {

struct DenseCall {
  const void* weight;  // [n, k], rows packed
  uint32_t n, k;
  const void* x;      // [tokens, k] of the weight's type
  uint64_t x_stride;  // elements
  bool is_short;      // weight and x are BF16; else F32
  Rows out;           // [tokens, n]; F32 of F32
  uint32_t tokens;
};

class DenseProducts {
 public:
  static constexpr uint32_t kTunedTokens = 256;

  // is_invariant: one way of computing for every number of tokens, without sums that are split: a row's bits depend on the row
  // alone.
  static Result<DenseProducts> create(bool is_invariant);
  DenseProducts(DenseProducts&& other) noexcept;
  DenseProducts& operator=(DenseProducts&&) = delete;
  ~DenseProducts();

  // Enqueues. The first call of a size asks cuBLASLt for its ways and keeps one: the fastest, for the numbers of rows that
  // steps are recorded with (ops::recorded_rows(), up to kTunedTokens), which waits for the stream; else its first choice.
  Status run(const DenseCall& call, cudaStream_t stream);
  const DeviceBuffer& workspace() const { return workspace_; }  // free between products of one stream

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, bool, bool>;  // n, k, tokens, alignment, types

  DenseProducts(cublasLtHandle_t handle, bool is_invariant, DeviceBuffer workspace)
      : handle_(handle), is_invariant_(is_invariant), workspace_(std::move(workspace)) {}
  Result<cublasLtMatmulAlgo_t> algorithm(const DenseCall& call, cudaStream_t stream);
  Status run(const DenseCall& call, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);

  cublasLtHandle_t handle_;
  bool is_invariant_;
  DeviceBuffer workspace_;
  std::map<Key, cublasLtMatmulAlgo_t> known_;
};

}  // namespace headwater::backend::cuda
