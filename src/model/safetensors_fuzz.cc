// Any bytes: the reader gives an error or tensors whose every byte can be read.
#include <cstddef>
#include <cstdint>

#include "model/safetensors_header.h"

using headwater::model::Tensor;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto contents = headwater::model::parse_safetensors({reinterpret_cast<const std::byte*>(data), size});
  if (!contents) return 0;
  uint64_t bytes = 0;
  for (const Tensor& tensor : contents->tensors) {
    bytes += tensor.data.size();
    if (tensor.data.empty()) continue;
    const uint32_t element = headwater::block_bytes(tensor.dtype);
    headwater::check(tensor.data.size() == tensor.rows() * tensor.columns() * element, "a shape that is not its data");
    float value = 0;
    headwater::dequantize_row(tensor.dtype, tensor.data.data(), 1, &value);
    headwater::dequantize_row(tensor.dtype, tensor.data.data() + tensor.data.size() - element, 1, &value);
  }
  headwater::check(bytes < size, "tensors of more bytes than the file");
  return 0;
}
