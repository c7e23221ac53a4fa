#include "model/checkpoint.h"

#include <sys/stat.h>

namespace headwater::model {

Checkpoint::Checkpoint(GgufFile file) : files_(std::move(file)) {}
Checkpoint::Checkpoint(SafetensorsFolder folder) : files_(std::move(folder)) {}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    HEADWATER_ASSIGN_OR_RETURN(SafetensorsFolder folder, SafetensorsFolder::open(path));
    return Checkpoint(std::move(folder));
  }
  HEADWATER_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  return Checkpoint(std::move(file));
}

const GgufFile* Checkpoint::gguf() const {
  return std::get_if<GgufFile>(&files_);
}
const SafetensorsFolder* Checkpoint::folder() const {
  return std::get_if<SafetensorsFolder>(&files_);
}
std::span<const Tensor> Checkpoint::tensors() const {
  return std::visit([](const auto& files) -> std::span<const Tensor> { return files.tensors(); }, files_);
}
const Tensor* Checkpoint::find(std::string_view name) const {
  return std::visit([&](const auto& files) { return files.find(name); }, files_);
}
uint64_t Checkpoint::file_bytes() const {
  return std::visit([](const auto& files) { return files.file_bytes(); }, files_);
}
void Checkpoint::drop_resident() const {
  std::visit([](const auto& files) { files.drop_resident(); }, files_);
}

}  // namespace headwater::model
