// Aligned, zeroed, move-only host memory. Large buffers are their own mapping, so pages cost memory only once touched.
// Memory of another kind (pinned for a device, say) is adopted together with the function that frees it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "core/result.h"

namespace headwater {

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  using Free = void (*)(std::byte* data, size_t bytes);

  static Result<Buffer> create(size_t bytes);                     // kExhausted when the system refuses
  static Buffer adopt(std::byte* data, size_t bytes, Free free);  // aligned and zeroed by the caller
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_ = nullptr;  // null: a mapping of its own
};

}  // namespace headwater
