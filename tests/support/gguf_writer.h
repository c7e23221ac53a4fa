// Builds GGUF version 3 images in memory: tiny models for tests, and wrong files for the reader's own tests.
//
//   GgufWriter writer;
//   writer.value("general.architecture", std::string("llama")).value("llama.block_count", uint32_t{2});
//   writer.array("tokenizer.ggml.tokens", tokens);
//   writer.tensor("token_embd.weight", DType::kQ8_0, {64, 256}, values);  // floats, quantised here
//   std::vector<std::byte> image = writer.image();
//
// The C++ type of a value is its GGUF type: bool, the fixed-width integers, float, double, std::string.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/core.h"
#include "support/quantize.h"

namespace headwater::testing {

class GgufWriter {
 public:
  // Where one number of the image lies, so that a test can replace it. `what` is count, length, type, dimensions,
  // dimension, or offset.
  struct Field {
    std::string_view what;
    size_t position;
    size_t bytes;
  };

  template <typename T>
  GgufWriter& value(std::string_view key, const T& item) {
    ++entry_count_;
    put_string(entries_, key);
    put_field(entries_, "type", type_number<T>());
    put_item(entries_, item);
    return *this;
  }

  template <typename Container>
  GgufWriter& array(std::string_view key, const Container& items) {
    using Item = typename Container::value_type;
    ++entry_count_;
    put_string(entries_, key);
    put_field(entries_, "type", uint32_t{9});
    put_field(entries_, "type", type_number<Item>());
    put_field(entries_, "count", uint64_t{items.size()});
    for (const Item& item : items) put_item(entries_, item);
    return *this;
  }

  GgufWriter& alignment(uint32_t bytes) {
    alignment_ = bytes;
    return value("general.alignment", bytes);
  }

  // `shape` as GGUF stores it: columns first. `values` has the product of the shape, row after row.
  GgufWriter& tensor(std::string_view name, DType dtype, const std::vector<uint64_t>& shape,
                     std::span<const float> values) {
    return tensor_bytes(name, ggml_number(dtype), shape, quantize(dtype, values));
  }

  // A tensor of any type number, its data already encoded.
  GgufWriter& tensor_bytes(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                           std::span<const std::byte> bytes) {
    ++tensor_count_;
    data_.bytes.resize(round_up(data_.bytes.size()));
    put_string(infos_, name);
    put_field(infos_, "dimensions", static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) put_field(infos_, "dimension", size);
    put_field(infos_, "type", type);
    put_field(infos_, "offset", uint64_t{data_.bytes.size()});
    data_.bytes.insert(data_.bytes.end(), bytes.begin(), bytes.end());
    return *this;
  }

  std::vector<std::byte> image() const {
    Section out = header();
    append(out, entries_);
    append(out, infos_);
    out.bytes.resize(round_up(out.bytes.size()));
    append(out, data_);
    return out.bytes;
  }

  std::vector<Field> fields() const {
    Section out = header();
    append(out, entries_);
    append(out, infos_);
    return out.fields;
  }

  void write(const std::string& path) const {
    const std::vector<std::byte> bytes = image();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    check(file.good(), "a test file could not be written");
  }

  static uint32_t ggml_number(DType dtype) {
    switch (dtype) {
      case DType::kF32:
        return 0;
      case DType::kF16:
        return 1;
      case DType::kBF16:
        return 30;
      case DType::kQ8_0:
        return 8;
      case DType::kQ4_0:
        return 2;
      case DType::kQ4_1:
        return 3;
      case DType::kF8E4M3:
        break;
    }
    return 0;
  }

 private:
  struct Section {
    std::vector<std::byte> bytes;
    std::vector<Field> fields;
  };

  template <typename T>
  static constexpr uint32_t type_number() {
    if constexpr (std::is_same_v<T, uint8_t>) return 0;
    if constexpr (std::is_same_v<T, int8_t>) return 1;
    if constexpr (std::is_same_v<T, uint16_t>) return 2;
    if constexpr (std::is_same_v<T, int16_t>) return 3;
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, std::string>) return 8;
    if constexpr (std::is_same_v<T, uint64_t>) return 10;
    if constexpr (std::is_same_v<T, int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
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
    for (const char c : text) section.bytes.push_back(static_cast<std::byte>(c));
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

  Section header() const {
    Section out;
    put(out, uint32_t{0x46554747});  // "GGUF"
    put(out, uint32_t{3});
    put_field(out, "count", tensor_count_);
    put_field(out, "count", entry_count_);
    return out;
  }

  size_t round_up(size_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

  uint32_t alignment_ = 32;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  Section entries_;
  Section infos_;
  Section data_;
};

}  // namespace headwater::testing
