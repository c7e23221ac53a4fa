// The golden cases of the model families, as README.md of this folder describes them, and the same model as a file of either
// format: weights come from the formula of tools/golden/families/weights.py, so none are stored.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "core/core.h"
#include "model/checkpoint.h"

namespace headwater::testing {

class FamilyCase {
 public:
  // Every case of tests/golden/families/<name>.jsonl. Throws where the file is missing or not as described.
  static std::vector<FamilyCase> read(const std::string& path);

  const std::string& name() const { return name_; }
  boost::json::object& config() { return config_; }  // config.json; a test may change it before it takes the folder
  boost::json::object& metadata() { return gguf_.at("metadata").as_object(); }  // likewise, without the architecture
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // Of every position, row after row: [tokens, vocabulary].
  const std::vector<float>& logits() const { return logits_; }

  // A checkpoint as Hugging Face publishes them: config.json and model.safetensors (F32; U8 where the case says so).
  // kF8: projections as F8_E4M3, each with one scale beside it. kF8AsBF16: the numbers that these stand for, as BF16.
  enum class Projections { kF32, kF8, kF8AsBF16 };
  Result<model::Checkpoint> folder(Projections projections = Projections::kF32) const;
  // What `headwater quantize` makes of that folder.
  Result<model::Checkpoint> quantized(DType dtype) const;
  // What llama.cpp's converter makes of it, all in F32.
  std::vector<std::byte> gguf_image() const;

 private:
  explicit FamilyCase(const boost::json::object& line);
  void write_folder(const std::string& path, Projections projections) const;
  struct Values {
    std::vector<uint64_t> shape;  // as the checkpoint has it: rows first
    std::vector<float> values;
  };
  Values source(const boost::json::value& name) const;
  Values from_recipe(const boost::json::object& recipe) const;

  std::string name_;
  boost::json::object config_;
  boost::json::object gguf_;
  std::vector<boost::json::array> tensors_;  // name, type, shape, and the two numbers of its formula
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
};

}  // namespace headwater::testing
