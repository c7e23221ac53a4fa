// Builds safetensors images in memory, and folders around them, for tests.
//
//   SafetensorsWriter writer;
//   writer.tensor("norm.weight", DType::kF32, {8}, values);  // shape as safetensors has it: rows first
//   TestFolder folder;
//   folder.write("config.json", "{}").write("model.safetensors", writer.image());
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/quantize.h"

namespace headwater::testing {

class SafetensorsWriter {
 public:
  SafetensorsWriter& tensor(std::string_view name, DType dtype, const std::vector<uint64_t>& shape,
                            std::span<const float> values) {
    return tensor_bytes(name, to_string(dtype), shape, quantize(dtype, values));
  }

  SafetensorsWriter& tensor_bytes(std::string_view name, std::string_view dtype, const std::vector<uint64_t>& shape,
                                  std::span<const std::byte> bytes) {
    std::string dimensions;
    for (const uint64_t size : shape) dimensions += fmt::format("{}{}", dimensions.empty() ? "" : ", ", size);
    return entry(fmt::format(R"("{}": {{"dtype": "{}", "shape": [{}], "data_offsets": [{}, {}]}})", name, dtype,
                             dimensions, data_.size(), data_.size() + bytes.size()),
                 bytes);
  }

  // One member of the header as it stands, and bytes that follow the data.
  SafetensorsWriter& entry(const std::string& member, std::span<const std::byte> bytes = {}) {
    header_ += (header_.empty() ? "" : ", ") + member;
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  std::vector<std::byte> image() const { return image_of("{" + header_ + "}", data_); }

  static std::vector<std::byte> image_of(std::string_view header, std::span<const std::byte> data) {
    const uint64_t length = header.size();
    std::vector<std::byte> bytes(sizeof(length) + header.size());
    std::memcpy(bytes.data(), &length, sizeof(length));
    std::memcpy(bytes.data() + sizeof(length), header.data(), header.size());
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
  }

 private:
  std::string header_;
  std::vector<std::byte> data_;
};

// A folder of its own, removed with it.
class TestFolder {
 public:
  TestFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() / fmt::format("headwater_test_{}_{}", getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  TestFolder(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  std::string file(std::string_view name) const { return (path_ / name).string(); }

  TestFolder& write(std::string_view name, std::string_view text) {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    check(out.good(), "a test file could not be written");
    return *this;
  }
  TestFolder& write(std::string_view name, std::span<const std::byte> bytes) {
    return write(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headwater::testing
