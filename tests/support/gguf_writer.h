// Builds GGUF images in memory: tiny models for tests, and wrong files for the reader's own tests.
//
//   GgufWriter writer;
//   writer.value("general.architecture", std::string("llama")).value("llama.block_count", uint32_t{2});
//   writer.tensor("token_embd.weight", DType::kQ8_0, {64, 256}, values);  // floats, quantised here
//   std::vector<std::byte> image = writer.image();
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "model/gguf_header.h"
#include "support/quantize.h"

namespace headwater::testing {

class GgufWriter {
 public:
  using Field = model::GgufHeader::Field;

  template <typename T>
  GgufWriter& value(std::string_view key, const T& item) {
    header_.value(key, item);
    return *this;
  }
  template <typename Container>
  GgufWriter& array(std::string_view key, const Container& items) {
    header_.array(key, items);
    return *this;
  }
  GgufWriter& alignment(uint32_t bytes) {
    header_.alignment(bytes);
    return *this;
  }

  // `shape` as GGUF stores it: columns first. `values` has the product of the shape, row after row.
  GgufWriter& tensor(std::string_view name, DType dtype, const std::vector<uint64_t>& shape,
                     std::span<const float> values) {
    return tensor_bytes(name, ggml_number(dtype), shape, quantize(dtype, values));
  }

  // A tensor of any type number, its data already encoded.
  GgufWriter& tensor_bytes(std::string_view name, uint32_t type, const std::vector<uint64_t>& shape,
                           std::span<const std::byte> bytes) {
    data_.resize(header_.tensor(name, type, shape, bytes.size()));
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  std::vector<std::byte> image() const {
    std::vector<std::byte> out = header_.bytes();
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }
  std::vector<Field> fields() const { return header_.fields(); }

  void write(const std::string& path) const {
    const std::vector<std::byte> bytes = image();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    check(file.good(), "a test file could not be written");
  }

  static uint32_t ggml_number(DType dtype) { return model::gguf_number(dtype).value(); }

 private:
  model::GgufHeader header_;
  std::vector<std::byte> data_;
};

}  // namespace headwater::testing
