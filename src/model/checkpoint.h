// A model as it lies on disk: tensors by name, and what describes them. Two formats:
//
//   GGUF          one file, or the parts of a split one: metadata and tensors
//   safetensors   a folder: config.json, *.safetensors (an index where there are several), tokenizer.json,
//                 tokenizer_config.json, generation_config.json, chat_template.jinja
//
// Everything is mapped, nothing is copied; views live as long as the Checkpoint. All of it is untrusted input.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "core/core.h"
#include "model/gguf.h"
#include "model/safetensors.h"

namespace headwater::model {

class Checkpoint {
 public:
  // A GGUF file (any part of a split one), or a folder. kNotFound, kCorrupt, kUnsupported as the formats' own doors say.
  static Result<Checkpoint> open(const std::string& path);
  explicit Checkpoint(GgufFile file);
  explicit Checkpoint(SafetensorsFolder folder);

  const GgufFile* gguf() const;             // null for a folder
  const SafetensorsFolder* folder() const;  // null for a GGUF

  std::span<const Tensor> tensors() const;
  const Tensor* find(std::string_view name) const;  // by the format's own name; null when absent
  uint64_t file_bytes() const;
  void drop_resident() const;  // as GgufFile::drop_resident

 private:
  std::variant<GgufFile, SafetensorsFolder> files_;
};

}  // namespace headwater::model
