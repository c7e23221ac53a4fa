// A folder as Hugging Face publishes models: config.json, safetensors files, and the tokenizer's files.
// Untrusted input, mapped; views live as long as the object. One thread at a time: text() maps a file when it is first asked
// for. Source: the safetensors format description (header length u64, JSON header, data) of huggingface/safetensors.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"
#include "core/json.h"
#include "model/tensor.h"

namespace headwater::model {

class SafetensorsFolder {
 public:
  // kNotFound (names the missing file), kCorrupt (file, offset and what was found there), kUnsupported (a dtype).
  static Result<SafetensorsFolder> open(const std::string& path);
  // config.json and the texts alone, for tensors that come from elsewhere.
  static Result<SafetensorsFolder> open_without_weights(const std::string& path);
  void add_tensors(std::vector<Tensor> tensors, std::shared_ptr<const void> memory);  // names and data lie in `memory`
  SafetensorsFolder(SafetensorsFolder&&) noexcept;
  SafetensorsFolder& operator=(SafetensorsFolder&&) noexcept;
  ~SafetensorsFolder();

  const json::Value& config() const;  // config.json, an object
  // The bytes of another file of the folder by its name ("tokenizer.json"). kNotFound when nothing has that name;
  // kInvalidArgument when it is there and cannot be read; kCorrupt when it is empty, or far too large for what it is.
  Result<std::string_view> text(std::string_view name) const;
  Result<std::string_view> text_or_nothing(std::string_view name) const;  // empty when nothing has that name

  const std::vector<Tensor>& tensors() const;       // Tensor::shape reversed: columns first, as GGUF has it
  const Tensor* find(std::string_view name) const;  // nullptr when absent
  uint64_t file_bytes() const;
  void drop_resident() const;

 private:
  struct Impl;
  explicit SafetensorsFolder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::model
