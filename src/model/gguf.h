// GGUF version 3, memory-mapped. A model file is untrusted input: every count, offset, size, alignment and type is
// checked in 64-bit arithmetic that cannot wrap before it is used, and nothing is allocated in proportion to a number
// that the file merely claims. Source: ggml/docs/gguf.md (format), ggml-common.h (block types).
//
//   | magic version tensor_count kv_count | kv ... | tensor info ... | padding | tensor data ... |
//
// The mapping lives as long as the GgufFile; every view below points into it. Shortening the file meanwhile
// stops the process (SIGBUS).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::model {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct GgufTensor {
  std::string_view name;
  DType dtype;
  std::vector<uint64_t> shape;  // as stored: shape[0] is the contiguous dimension (columns), then rows, ...
  std::span<const std::byte> data;
  uint64_t file_offset;  // of data, from the start of the file

  uint64_t columns() const { return shape.empty() ? 1 : shape[0]; }
  uint64_t rows() const;  // product of the other dimensions
};

class GgufFile {
 public:
  // kNotFound, kCorrupt (names the offset and what was found there) or kUnsupported (a version or type we do not read).
  static Result<GgufFile> open(const std::string& path);
  static Result<GgufFile> parse(std::span<const std::byte> bytes);  // borrowed; for tests and the fuzzer

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  // Metadata. Typed reads fail with kNotFound (names the key) or kCorrupt (names the type that was found).
  bool has(std::string_view key) const;
  Result<uint64_t> unsigned_at(std::string_view key) const;  // any integer type, not negative
  Result<int64_t> integer_at(std::string_view key) const;
  Result<double> number_at(std::string_view key) const;  // f32, f64 or any integer
  Result<bool> bool_at(std::string_view key) const;
  Result<std::string_view> string_at(std::string_view key) const;
  Result<std::vector<std::string_view>> strings_at(std::string_view key) const;
  Result<std::vector<int64_t>> integers_at(std::string_view key) const;
  Result<std::vector<double>> numbers_at(std::string_view key) const;

  struct Entry {
    std::string_view key;
    GgufType type;
    GgufType element_type;  // of an array
    uint64_t count;         // of an array; 1 otherwise
  };
  const std::vector<Entry>& entries() const;
  std::string describe(std::string_view key, size_t characters_max) const;  // a value as text, for `inspect`

  const std::vector<GgufTensor>& tensors() const;
  const GgufTensor* find(std::string_view name) const;  // nullptr when absent
  uint64_t file_bytes() const;
  // The mapping's pages may leave this process's memory; they come back when read. After weights were repacked.
  void drop_resident() const;
  uint32_t alignment() const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::model
