#include "backend/cuda/cuda_backend.h"

namespace headwater::backend::cuda {

const bool kIsBuilt = false;

Result<std::unique_ptr<ops::Backend>> create(const ops::BackendConfig&) {
  return error(ErrorCode::kUnsupported, "built without CUDA; use --backend cpu");
}

}  // namespace headwater::backend::cuda
