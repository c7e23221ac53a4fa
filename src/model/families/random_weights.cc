#include "model/families/random_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>

#include "model/families/family.h"
#include "model/transformer/weights.h"

namespace headwater::model {
namespace {

constexpr float kDeviation = 0.02f;
constexpr uint64_t kPatternBytes = uint64_t{2} << 20;  // about

// `bytes` of address space that read a pattern over and over.
class Repeated {
 public:
  Repeated() = default;
  Repeated(Repeated&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Repeated& operator=(Repeated&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Repeated() {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }

  // pattern: of whole pages.
  static Result<Repeated> create(std::span<const std::byte> pattern, uint64_t bytes) {
    const auto failed = [&](const char* what) {
      return error(ErrorCode::kExhausted, "random weights of {} bytes: {} fails", bytes, what);
    };
    const int file = memfd_create("random weights", MFD_CLOEXEC);
    if (file < 0) return failed("memfd_create");
    const std::unique_ptr<const int, void (*)(const int*)> closed(&file, [](const int* open) { close(*open); });
    if (write(file, pattern.data(), pattern.size()) != static_cast<ssize_t>(pattern.size())) return failed("write");
    Repeated repeated;
    const uint64_t whole = (bytes + pattern.size() - 1) / pattern.size() * pattern.size();
    void* begin = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return failed("mmap");
    repeated.bytes_ = {static_cast<std::byte*>(begin), whole};
    for (uint64_t at = 0; at < whole; at += pattern.size()) {
      if (mmap(repeated.bytes_.data() + at, pattern.size(), PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
        return failed("mmap");
      }
    }
    return repeated;
  }
  const std::byte* data() const { return bytes_.data(); }

 private:
  std::span<std::byte> bytes_;
};

std::vector<std::byte> random_pattern(DType dtype) {
  const uint64_t block = row_bytes(dtype, block_elements(dtype));
  const uint64_t unit = std::lcm(block, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  std::vector<std::byte> pattern(std::max<uint64_t>(kPatternBytes / unit, 1) * unit);
  Random random(1);
  std::vector<float> values(block_elements(dtype));
  for (uint64_t at = 0; at < pattern.size(); at += block) {
    for (float& value : values) value = kDeviation * random.normal();
    check(quantize_row(dtype, values, &pattern[at]).is_ok(), "finite numbers can be stored");
  }
  return pattern;
}

// What tensors point into.
struct Memory {
  Repeated matrices, bf16, ones;
  std::list<std::string> names;
};

bool can_be_random(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kQ8_0 || dtype == DType::kQ4_0 || dtype == DType::kQ4_1;
}

}  // namespace

Result<Checkpoint> open_with_random_weights(const std::string& path, DType dtype) {
  if (!can_be_random(dtype)) {
    return error(ErrorCode::kInvalidArgument, "random weights of {} are not made; use bf16, q8_0, q4_0 or q4_1",
                 to_string(dtype));
  }
  HEADWATER_ASSIGN_OR_RETURN(SafetensorsFolder config_alone, SafetensorsFolder::open_without_weights(path));
  const Checkpoint checkpoint(std::move(config_alone));
  HEADWATER_ASSIGN_OR_RETURN(Hyperparameters h, Hyperparameters::open(checkpoint));
  Weights weights;
  HEADWATER_ASSIGN_OR_RETURN(weights.blueprint, read_blueprint(h));
  if (weights.blueprint.folder_expert_slots != nullptr) {
    return error(ErrorCode::kUnsupported, "random weights of the family '{}' are not made",
                 weights.blueprint.shape.family);
  }
  auto memory = std::make_shared<Memory>();
  uint64_t matrix_max = 1, vector_max = 1;
  std::vector<Tensor> tensors;
  for (const Slot& slot : bind_slots(UINT64_MAX, weights.blueprint, weights)) {
    const bool is_matrix = slot.rows > 1;
    const DType stored = !is_matrix ? DType::kF32 : slot.columns % block_elements(dtype) == 0 ? dtype : DType::kBF16;
    const uint64_t elements = slot.rows * slot.columns;
    (is_matrix ? matrix_max : vector_max) = std::max(is_matrix ? matrix_max : vector_max, elements);
    memory->names.push_back(slot.name);
    tensors.push_back({memory->names.back(), stored, {slot.columns, slot.rows}, {}, 0});
    if (!is_matrix) tensors.back().shape.pop_back();
  }
  const uint64_t blocks = matrix_max / block_elements(dtype);  // a matrix of fewer is of BF16
  HEADWATER_ASSIGN_OR_RETURN(memory->matrices,
                             Repeated::create(random_pattern(dtype), blocks * row_bytes(dtype, block_elements(dtype))));
  HEADWATER_ASSIGN_OR_RETURN(memory->bf16, Repeated::create(random_pattern(DType::kBF16), 2 * matrix_max));
  const std::vector<float> ones(kPatternBytes / sizeof(float), 1.0f);
  HEADWATER_ASSIGN_OR_RETURN(memory->ones, Repeated::create(std::as_bytes(std::span(ones)), 4 * vector_max));
  for (Tensor& tensor : tensors) {
    const Repeated& from = tensor.dtype == DType::kF32 ? memory->ones
                           : tensor.dtype == dtype     ? memory->matrices
                                                       : memory->bf16;
    tensor.data = {from.data(), tensor.rows() * row_bytes(tensor.dtype, tensor.columns())};
  }
  HEADWATER_ASSIGN_OR_RETURN(SafetensorsFolder folder, SafetensorsFolder::open_without_weights(path));
  folder.add_tensors(std::move(tensors), std::move(memory));
  return Checkpoint(std::move(folder));
}

}  // namespace headwater::model
