// A bounds-checked reader of little-endian GGUF primitives. Internal to the GGUF reader.
//
// Invariant: position() <= the number of bytes, so remaining() never wraps; a failed read does not move the position.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/core.h"

namespace headwater::model {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place as little-endian");

class GgufCursor {
 public:
  explicit GgufCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // kCorrupt, with the offset and what was to be read there, when fewer than `bytes` remain.
  Status skip(uint64_t bytes, std::string_view what) {
    if (bytes > remaining()) {
      return error(ErrorCode::kCorrupt, "offset {}: {} needs {} bytes but the file ends after {}", position_, what,
                   bytes, remaining());
    }
    position_ += bytes;
    return Status();
  }

  template <typename T>
  Result<T> read(std::string_view what) {
    const std::byte* at = bytes_.data() + position_;
    HEADWATER_RETURN_IF_ERROR(skip(sizeof(T), what));
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }

  Result<std::string_view> read_string(std::string_view what, uint64_t bytes_max) {
    const uint64_t start = position_;
    HEADWATER_ASSIGN_OR_RETURN(const uint64_t length, read<uint64_t>(what));
    if (length > bytes_max) {
      position_ = start;
      return error(ErrorCode::kCorrupt, "offset {}: {} has {} bytes; the limit is {}", start, what, length, bytes_max);
    }
    const auto* text = reinterpret_cast<const char*>(bytes_.data() + position_);
    if (Status status = skip(length, what); !status) {
      position_ = start;
      return status;
    }
    return std::string_view(text, length);
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace headwater::model
