#include "backend/cpu/weight_memory.h"

#include <algorithm>

namespace headwater::backend::cpu {
namespace {

constexpr uint64_t kMappingBytes = uint64_t{32} << 20;
constexpr uint64_t kAlignment = 64;

}  // namespace

Result<WeightMemory::Piece> WeightMemory::take(uint64_t bytes) {
  if (mapping_ == nullptr || used_ + bytes > mapping_->size()) {
    HEADWATER_ASSIGN_OR_RETURN(Buffer buffer, Buffer::create(std::max(bytes, kMappingBytes)));
    auto mapping = std::make_shared<Buffer>(std::move(buffer));
    if (bytes >= kMappingBytes) return Piece{mapping, mapping->data()};  // what is left of the other one stays in use
    mapping_ = std::move(mapping);
    used_ = 0;
  }
  std::byte* data = mapping_->data() + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return Piece{mapping_, data};
}

}  // namespace headwater::backend::cpu
