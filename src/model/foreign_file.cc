#include "model/foreign_file.h"

#include <cstdint>
#include <cstring>

namespace headwater::model {
namespace {

struct Kind {
  std::string_view begins;
  std::string_view meaning;
};
constexpr Kind kKinds[] = {
    {"version https://git-lfs", "; it is a pointer of Git LFS, not the file: fetch that with `git lfs pull`"},
    {"PK\x03\x04", "; it is a zip archive, as PyTorch writes models: save the model as safetensors"},
    {"lmgg", "; it is a llama.cpp file older than GGUF: convert the model again"},
    {"fmgg", "; it is a llama.cpp file older than GGUF: convert the model again"},
    {"tjgg", "; it is a llama.cpp file older than GGUF: convert the model again"},
    {"\x1f\x8b", "; it is compressed with gzip: unpack it"},
    {"\x89HDF", "; it is an HDF5 file: save the model as safetensors"},
    {"<", "; it is a web page: the download failed"},
    {"{", "; it is a JSON file: give the model's folder"},
};

// A length that fits, then a JSON object.
bool is_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 10 || bytes[8] != std::byte{'{'}) return false;
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length <= bytes.size() - 8;
}

}  // namespace

std::string_view foreign_file(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Kind& kind : kKinds) {
    if (text.starts_with(kind.begins)) return kind.meaning;
  }
  return is_safetensors(bytes) ? "; it is a safetensors file: give its folder, where config.json is" : "";
}

}  // namespace headwater::model
