// Any text as the config.json of a folder whose one tensor is an embedding: an error, or a shape in range; and as numbers of
// GGUF the same, or an error.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "model/families/family.h"
#include "model/gguf_numbers.h"
#include "model/model.h"

using namespace headwater;

namespace {

// A folder of this process, with the weights that all inputs share.
const std::string& folder() {
  static const std::string path = [] {
    std::string made =
        fmt::format("{}/headwater_families_fuzz_{}", std::filesystem::temp_directory_path().string(), getpid());
    std::filesystem::create_directories(made);
    std::string header = R"({"model.embed_tokens.weight":{"dtype":"F16","shape":[48,64],"data_offsets":[0,6144]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t bytes = header.size();
    std::ofstream file(made + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    file << header << std::string(6144, '\0');
    return made;
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::ofstream(folder() + "/config.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto checkpoint = model::Checkpoint::open(folder());
  if (!checkpoint) return 0;
  const auto shape = model::read_shape(*checkpoint);
  if (shape) check(shape->head_dim % 16 == 0 && shape->rope_dims <= shape->head_dim, "a shape out of range");
  check(!model::check_tensors(*checkpoint), "a model without layers was taken");
  auto numbers = model::Hyperparameters::open(*checkpoint);
  if (!numbers) return 0;
  const auto blueprint = model::read_blueprint(*numbers);
  if (blueprint) (void)model::check_numbers("llama", numbers->in_gguf(), *blueprint).is_ok();
  return 0;
}
