// GGUF version 3, memory-mapped. A model file is untrusted input: every count, offset, size, alignment and type is
// checked in 64-bit arithmetic that cannot wrap before it is used, and nothing is allocated in proportion to a number
// that the file merely claims. Source: ggml/docs/gguf.md (format), ggml-common.h (block types).
//
//   | magic version tensor_count kv_count | kv ... | tensor info ... | padding | tensor data ... |
//
// The mapping lives as long as the GgufFile; every view below points into it. Shortening the file meanwhile
// ends the process (SIGBUS, file_signals.h). Offsets count from the start of a tensor's or value's own part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"
#include "model/tensor.h"

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

// ggml's number of a type, and back; none for a type that no weight has (is_weight_type) or that ggml does not know.
std::optional<uint32_t> gguf_number(DType dtype);
std::optional<DType> gguf_dtype(uint32_t number);

class GgufFile {
 public:
  // A file, or a split one by the path of any of its parts: the others lie beside it (name-00002-of-00003.gguf).
  // kNotFound, kCorrupt (names the offset and what was found there) or kUnsupported (a version or type we do not read).
  static Result<GgufFile> open(const std::string& path);
  // One file by itself, or one part. Borrowed; for tests and the fuzzer.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);

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
  Result<std::vector<bool>> bools_at(std::string_view key) const;

  struct Entry {
    std::string_view key;
    GgufType type;
    GgufType element_type;  // of an array
    uint64_t count;         // of an array; 1 otherwise
    uint64_t offset;        // of the value, from the start of its file
  };
  const std::vector<Entry>& entries() const;
  std::string describe(std::string_view key, size_t characters_max) const;  // a value as text, for `inspect`

  const std::vector<Tensor>& tensors() const;
  const Tensor* find(std::string_view name) const;  // nullptr when absent
  uint64_t file_bytes() const;                      // of all parts
  size_t parts() const;                             // 1 unless it is a split one
  // The mapping's pages may leave this process's memory; they come back when read. After weights were repacked.
  void drop_resident() const;
  uint32_t alignment() const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  static Result<GgufFile> open_part(const std::string& path);
  static Result<GgufFile> open_split(GgufFile any, const std::string& path);  // gguf_split.cc
  Status add_part(GgufFile part, const std::string& path);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::model
