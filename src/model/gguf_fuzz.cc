// Any bytes: the reader gives an error or a file whose every value and tensor can be read.
#include <cstddef>
#include <cstdint>

#include "model/gguf.h"

using headwater::model::GgufFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file) return 0;
  for (const auto& entry : file->entries()) {
    (void)file->describe(entry.key, 24);
    (void)file->unsigned_at(entry.key);
    (void)file->integer_at(entry.key);
    (void)file->number_at(entry.key);
    (void)file->bool_at(entry.key);
    (void)file->string_at(entry.key);
    (void)file->strings_at(entry.key);
    (void)file->integers_at(entry.key);
    (void)file->numbers_at(entry.key);
  }
  for (const auto& tensor : file->tensors()) {
    headwater::check(file->find(tensor.name) == &tensor, "a tensor is not found by its own name");
    const uint64_t elements = headwater::block_elements(tensor.dtype);
    float block[256];
    headwater::dequantize_row(tensor.dtype, tensor.data.data(), elements, block);
    headwater::dequantize_row(
        tensor.dtype, tensor.data.data() + tensor.data.size() - headwater::block_bytes(tensor.dtype), elements, block);
  }
  return 0;
}
