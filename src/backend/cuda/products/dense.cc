#include "backend/cuda/products/dense.h"

#include <array>
#include <limits>

#include "backend/cuda/products/timing.h"
#include "ops/step_block.h"

namespace headwater::backend::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kWays = 8;
constexpr uint32_t kTokensOfInvariant = 128;  // that its one way is chosen for

Status checked(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return {};
  return error(ErrorCode::kInternal, "{}: {}", what, cublasLtGetStatusString(result));
}

template <typename T, cublasStatus_t (*kDestroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  ~Owned() {
    if (value_ != nullptr) kDestroy(value_);
  }
  T* place() { return &value_; }
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};

// As cuBLASLt sees it, columns first: out [n, tokens] = transpose of weight [k, n] times x [k, tokens].
struct Problem {
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description;
  Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> weight, x, out;

  Status set(const DenseCall& call, uint32_t tokens) {
    const cudaDataType_t in_type = call.is_short ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t out_type = call.out.is_short ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    constexpr const char* kWhat = "describing a product";
    HEADWATER_RETURN_IF_ERROR(
        checked(cublasLtMatmulDescCreate(description.place(), CUBLAS_COMPUTE_32F, CUDA_R_32F), kWhat));
    HEADWATER_RETURN_IF_ERROR(checked(
        cublasLtMatmulDescSetAttribute(description.get(), CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
        kWhat));
    HEADWATER_RETURN_IF_ERROR(
        checked(cublasLtMatrixLayoutCreate(weight.place(), in_type, call.k, call.n, call.k), kWhat));
    HEADWATER_RETURN_IF_ERROR(checked(
        cublasLtMatrixLayoutCreate(x.place(), in_type, call.k, tokens, static_cast<int64_t>(call.x_stride)), kWhat));
    return checked(
        cublasLtMatrixLayoutCreate(out.place(), out_type, call.n, tokens, static_cast<int64_t>(call.out.stride)),
        kWhat);
  }
};

// The largest power of two, up to 256, that divides the address and the step between rows.
uint32_t alignment_of(const void* address, uint64_t stride_bytes) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(address) | stride_bytes | 256;
  return static_cast<uint32_t>(bits & -bits);
}

Status prefer(cublasLtMatmulPreference_t preference, const DenseCall& call, bool is_invariant) {
  constexpr const char* kWhat = "choosing a product";
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return checked(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), kWhat);
  };
  HEADWATER_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes}));
  const uint64_t bytes_out = call.out.is_short ? 2 : 4;
  // What every weight and operand has.
  HEADWATER_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{16}));
  HEADWATER_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{16}));
  const uint32_t of_out = alignment_of(call.out.data, call.out.stride * bytes_out);
  HEADWATER_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_out));
  HEADWATER_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of_out));
  if (!is_invariant) return {};
  return set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
}

}  // namespace

Result<DenseProducts> DenseProducts::create(bool is_invariant) {
  HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer workspace, DeviceBuffer::create(kWorkspaceBytes));
  cublasLtHandle_t handle = nullptr;
  HEADWATER_RETURN_IF_ERROR(checked(cublasLtCreate(&handle), "cuBLASLt"));
  return DenseProducts(handle, is_invariant, std::move(workspace));
}

DenseProducts::DenseProducts(DenseProducts&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      is_invariant_(other.is_invariant_),
      workspace_(std::move(other.workspace_)),
      known_(std::move(other.known_)) {}

DenseProducts::~DenseProducts() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Result<cublasLtMatmulAlgo_t> DenseProducts::algorithm(const DenseCall& call, cudaStream_t stream) {
  const uint32_t tokens = is_invariant_ ? kTokensOfInvariant : call.tokens;
  const uint32_t alignment = alignment_of(call.out.data, call.out.stride * (call.out.is_short ? 2 : 4));
  const Key key{call.n, call.k, tokens, alignment, call.is_short, call.out.is_short};
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  Problem problem;
  HEADWATER_RETURN_IF_ERROR(problem.set(call, tokens));
  Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
  HEADWATER_RETURN_IF_ERROR(checked(cublasLtMatmulPreferenceCreate(preference.place()), "choosing a product"));
  HEADWATER_RETURN_IF_ERROR(prefer(preference.get(), call, is_invariant_));
  std::array<cublasLtMatmulHeuristicResult_t, kWays> found{};
  int count = 0;
  HEADWATER_RETURN_IF_ERROR(
      checked(cublasLtMatmulAlgoGetHeuristic(handle_, problem.description.get(), problem.weight.get(), problem.x.get(),
                                             problem.out.get(), problem.out.get(), preference.get(), kWays,
                                             found.data(), &count),
              "choosing a product"));
  if (count == 0) {
    return error(ErrorCode::kUnsupported, "cuBLASLt has no product of [{}, {}] with {} rows", call.n, call.k, tokens);
  }
  int best = 0;
  if (!is_invariant_ && tokens <= kTunedTokens && ops::recorded_rows(tokens) == tokens && !is_recording(stream)) {
    float best_ms = std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t& way = found[static_cast<size_t>(i)].algo;
      const Result<float> ms = shortest_ms([&] { return run(call, way, stream); }, workspace_, stream);
      if (ms && *ms < best_ms) best = i, best_ms = *ms;
    }
    if (best_ms == std::numeric_limits<float>::infinity()) {
      return error(ErrorCode::kInternal, "no way of cuBLASLt computes a product of [{}, {}] with {} rows", call.n,
                   call.k, tokens);
    }
  }
  return known_[key] = found[static_cast<size_t>(best)].algo;
}

Status DenseProducts::run(const DenseCall& call, cudaStream_t stream) {
  HEADWATER_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm, this->algorithm(call, stream));
  return run(call, algorithm, stream);
}

Status DenseProducts::run(const DenseCall& call, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
  Problem problem;
  HEADWATER_RETURN_IF_ERROR(problem.set(call, call.tokens));
  const float one = 1, zero = 0;
  return checked(cublasLtMatmul(handle_, problem.description.get(), &one, call.weight, problem.weight.get(), call.x,
                                problem.x.get(), &zero, call.out.data, problem.out.get(), call.out.data,
                                problem.out.get(), &algorithm, workspace_.data(), workspace_.size(), stream),
                 "a product");
}

}  // namespace headwater::backend::cuda
