// What a GGUF file of version 3 has before its data: metadata and where each tensor lies. For writing.
//
//   GgufHeader header;
//   header.value("general.architecture", std::string("llama"));
//   header.array("tokenizer.ggml.tokens", tokens);
//   const uint64_t offset = header.tensor("token_embd.weight", *gguf_number(DType::kQ8_0), {64, 256}, bytes);
//   std::vector<std::byte> begin = header.bytes();  // then each tensor's bytes at its offset from here
//
// The C++ type of a value is its GGUF type: bool, the fixed-width integers, float, double, std::string.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/gguf.h"

namespace headwater::model {

class GgufHeader {
 public:
  // Where one number lies, so that a test can replace it. `what` is count, length, type, dimensions, dimension, or offset.
  struct Field {
    std::string_view what;
    size_t position;
    size_t bytes;
  };

  template <typename T>
  GgufHeader& value(std::string_view key, const T& item) {
    ++entry_count_;
    put_string(entries_, key);
    put_field(entries_, "type", type_number<T>());
    put_item(entries_, item);
    return *this;
  }

  template <typename Container>
  GgufHeader& array(std::string_view key, const Container& items) {
    using Item = typename Container::value_type;
    ++entry_count_;
    put_string(entries_, key);
    put_field(entries_, "type", static_cast<uint32_t>(GgufType::kArray));
    put_field(entries_, "type", type_number<Item>());
    put_field(entries_, "count", uint64_t{items.size()});
    for (const Item& item : items) put_item(entries_, item);
    return *this;
  }

  // All values of another header, which has no tensors.
  GgufHeader& values(const GgufHeader& other) {
    entry_count_ += other.entry_count_;
    append(entries_, other.entries_);
    return *this;
  }

  GgufHeader& alignment(uint32_t bytes) {
    alignment_ = bytes;
    return value("general.alignment", bytes);
  }

  // Places a tensor of `bytes` behind those before it: its offset in the data. `type` is ggml's number; shape: columns
  // first.
  uint64_t tensor(std::string_view name, uint32_t type, std::span<const uint64_t> shape, uint64_t bytes) {
    const uint64_t offset = aligned(data_bytes_);
    ++tensor_count_;
    put_string(infos_, name);
    put_field(infos_, "dimensions", static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) put_field(infos_, "dimension", size);
    put_field(infos_, "type", type);
    put_field(infos_, "offset", offset);
    data_bytes_ = offset + bytes;
    return offset;
  }

  // Up to the first byte of the data.
  std::vector<std::byte> bytes() const {
    Section out = all();
    out.bytes.resize(aligned(out.bytes.size()));
    return out.bytes;
  }
  std::vector<Field> fields() const { return all().fields; }
  uint64_t data_bytes() const { return data_bytes_; }  // with the padding between tensors

 private:
  struct Section {
    std::vector<std::byte> bytes;
    std::vector<Field> fields;
  };

  template <typename T>
  static constexpr uint32_t type_number() {
    constexpr auto kNumber = std::is_same_v<T, uint8_t>       ? GgufType::kU8
                             : std::is_same_v<T, int8_t>      ? GgufType::kI8
                             : std::is_same_v<T, uint16_t>    ? GgufType::kU16
                             : std::is_same_v<T, int16_t>     ? GgufType::kI16
                             : std::is_same_v<T, uint32_t>    ? GgufType::kU32
                             : std::is_same_v<T, int32_t>     ? GgufType::kI32
                             : std::is_same_v<T, float>       ? GgufType::kF32
                             : std::is_same_v<T, bool>        ? GgufType::kBool
                             : std::is_same_v<T, std::string> ? GgufType::kString
                             : std::is_same_v<T, uint64_t>    ? GgufType::kU64
                             : std::is_same_v<T, int64_t>     ? GgufType::kI64
                             : std::is_same_v<T, double>      ? GgufType::kF64
                                                              : GgufType::kArray;
    static_assert(kNumber != GgufType::kArray, "GGUF has no value of this type");
    return static_cast<uint32_t>(kNumber);
  }

  template <typename T>
  static void put(Section& section, T number) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&number);
    section.bytes.insert(section.bytes.end(), bytes, bytes + sizeof(T));
  }

  template <typename T>
  static void put_field(Section& section, std::string_view what, T number) {
    section.fields.push_back({what, section.bytes.size(), sizeof(T)});
    put(section, number);
  }

  static void put_string(Section& section, std::string_view text) {
    put_field(section, "length", uint64_t{text.size()});
    const auto bytes = std::as_bytes(std::span(text));
    section.bytes.insert(section.bytes.end(), bytes.begin(), bytes.end());
  }

  template <typename T>
  static void put_item(Section& section, const T& item) {
    if constexpr (std::is_same_v<T, std::string>) {
      put_string(section, item);
    } else {
      put(section, item);
    }
  }

  static void append(Section& to, const Section& from) {
    for (Field field : from.fields) {
      field.position += to.bytes.size();
      to.fields.push_back(field);
    }
    to.bytes.insert(to.bytes.end(), from.bytes.begin(), from.bytes.end());
  }

  Section all() const {
    Section out;
    put(out, uint32_t{0x46554747});  // "GGUF"
    put(out, uint32_t{3});
    put_field(out, "count", tensor_count_);
    put_field(out, "count", entry_count_);
    append(out, entries_);
    append(out, infos_);
    return out;
  }

  uint64_t aligned(uint64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

  uint32_t alignment_ = 32;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t data_bytes_ = 0;
  Section entries_;
  Section infos_;
};

}  // namespace headwater::model
