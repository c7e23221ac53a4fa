#include "core/buffer.h"

#include <sys/mman.h>

namespace headwater {

Result<Buffer> Buffer::create(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return error(ErrorCode::kExhausted, "the system refused {} bytes of memory; free some or ask for less", bytes);
  }
  if (bytes >= (size_t{2} << 20)) madvise(data, bytes, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer Buffer::adopt(std::byte* data, size_t bytes, Free free) {
  Buffer buffer;
  buffer.data_ = data;
  buffer.bytes_ = bytes;
  buffer.free_ = free;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  free_ != nullptr ? free_(data_, bytes_) : static_cast<void>(munmap(data_, bytes_));
}

}  // namespace headwater
