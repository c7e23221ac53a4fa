#include "model/safetensors.h"

#include <climits>
#include <functional>
#include <map>

#include "core/shown.h"
#include "model/mapping.h"
#include "model/names.h"
#include "model/safetensors_header.h"

namespace headwater::model {
namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kSingle = "model.safetensors";

// Far beyond any model's: what is larger is another file than its name says.
uint64_t text_bytes_max(std::string_view name) {
  return uint64_t{name == "tokenizer.json" || name == kIndex ? 128u : 16u} << 20;
}

// A file's own name, which does not lead out of its folder.
bool is_file_name(std::string_view name) {
  return is_printable(name) && name.size() <= NAME_MAX && name.find('/') == std::string_view::npos && name[0] != '.';
}

Status within(const std::string& path, const Status& status) {
  return error(status.code(), "'{}': {}", path, status.message());
}

struct Shard {
  Mapping mapping;
  SafetensorsContents contents;

  bool holds(const Tensor& tensor) const {
    const std::span<const std::byte> bytes = mapping.bytes();
    return std::less_equal<>()(bytes.data(), tensor.data.data()) &&
           std::less_equal<>()(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
  }
};

Result<Shard> open_shard(const std::string& path) {
  Shard shard;
  HEADWATER_ASSIGN_OR_RETURN(shard.mapping, Mapping::create(path));
  auto contents = parse_safetensors(shard.mapping.bytes());
  if (!contents) return within(path, contents.status());
  shard.contents = std::move(contents).value();
  return shard;
}

}  // namespace

struct SafetensorsFolder::Impl {
  std::string path;
  json::Value config;
  std::map<std::string, Shard, std::less<>> shards;  // by file name
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<const void>> memory;    // of tensors that are in no file
  std::map<std::string_view, size_t> tensor_index;    // name -> tensors[]
  std::map<std::string, Mapping, std::less<>> texts;  // by file name, mapped when asked for

  std::string file(std::string_view name) const { return fmt::format("{}/{}", path, name); }

  Result<std::string_view> text(std::string_view name) {
    if (!is_file_name(name))
      return error(ErrorCode::kInvalidArgument, "{} is no name of a file in a folder", quoted(name));
    if (const auto known = texts.find(name); known != texts.end()) return known->second.text();
    HEADWATER_ASSIGN_OR_RETURN(Mapping mapping, Mapping::create(file(name)));
    const uint64_t bytes = mapping.bytes().size();
    if (bytes == 0) return error(ErrorCode::kCorrupt, "'{}' is empty: fetch it again, or remove it", file(name));
    if (bytes > text_bytes_max(name)) {
      return error(ErrorCode::kCorrupt, "'{}' has {} bytes; a file of that name has at most {}", file(name), bytes,
                   text_bytes_max(name));
    }
    return texts.emplace(name, std::move(mapping)).first->second.text();
  }

  Result<json::Value> object(std::string_view name) {
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view json, text(name));
    HEADWATER_ASSIGN_OR_RETURN(json::Value value, json::parse(json, file(name)));
    if (!value.is_object()) return error(ErrorCode::kCorrupt, "{}: offset 0: no JSON object", file(name));
    return value;
  }

  Status add_shard(const std::string& name) {
    if (shards.contains(name)) return {};
    HEADWATER_ASSIGN_OR_RETURN(Shard shard, open_shard(file(name)));
    for (Tensor& tensor : shard.contents.tensors) {
      if (!tensor_index.emplace(tensor.name, tensors.size()).second) {
        return error(ErrorCode::kCorrupt, "'{}': offset {}: tensor '{}' is in another file of the folder as well",
                     file(name), tensor.file_offset, tensor.name);
      }
      tensors.push_back(tensor);
    }
    shards.emplace(name, std::move(shard));
    return {};
  }

  // The index names each tensor's file; both sides have to agree on what it names.
  Status add_shards_of_index() {
    HEADWATER_ASSIGN_OR_RETURN(const json::Value index, object(kIndex));
    const json::Value* map = json::find(index, "weight_map");
    if (map == nullptr || !map->is_object() || map->get_object().empty()) {
      return error(ErrorCode::kCorrupt, "'{}': no \"weight_map\" object with tensors", file(kIndex));
    }
    for (const auto& [tensor, value] : map->get_object()) {
      const std::string name(value.is_string() ? std::string_view(value.get_string()) : std::string_view());
      if (!is_file_name(name)) {
        return error(ErrorCode::kCorrupt, "'{}': \"weight_map\" has {}, which is no name of a file in the folder",
                     file(kIndex), quoted(name));
      }
      HEADWATER_RETURN_IF_ERROR(add_shard(name));
      const auto found = tensor_index.find(tensor);
      const bool is_there = found != tensor_index.end() && shards.find(name)->second.holds(tensors[found->second]);
      if (!is_there) {
        return error(ErrorCode::kCorrupt, "'{}': tensor '{}' is said to be in '{}' and is not", file(kIndex),
                     shown(tensor), name);
      }
    }
    return {};
  }

  Status add_all() {
    if (is_there(file(kIndex))) return add_shards_of_index();
    if (is_there(file(kSingle))) return add_shard(std::string(kSingle));
    const bool has_pickle = is_there(file("pytorch_model.bin")) || is_there(file("pytorch_model.bin.index.json"));
    return error(ErrorCode::kNotFound, "'{}' has neither {} nor {}{}", path, kSingle, kIndex,
                 has_pickle
                     ? "; its pytorch_model.bin is a program more than a file and is not read: save the model as "
                       "safetensors"
                     : "");
  }
};

SafetensorsFolder::SafetensorsFolder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFolder::SafetensorsFolder(SafetensorsFolder&&) noexcept = default;
SafetensorsFolder& SafetensorsFolder::operator=(SafetensorsFolder&&) noexcept = default;
SafetensorsFolder::~SafetensorsFolder() = default;

Result<SafetensorsFolder> SafetensorsFolder::open(const std::string& path) {
  HEADWATER_ASSIGN_OR_RETURN(SafetensorsFolder folder, open_without_weights(path));
  HEADWATER_RETURN_IF_ERROR(folder.impl_->add_all());
  return folder;
}

Result<SafetensorsFolder> SafetensorsFolder::open_without_weights(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (!is_there(impl->file(kConfig))) {
    return error(ErrorCode::kNotFound, "'{}' has no {}; a model's folder has that, *.safetensors and tokenizer.json",
                 path, kConfig);
  }
  HEADWATER_ASSIGN_OR_RETURN(impl->config, impl->object(kConfig));
  return SafetensorsFolder(std::move(impl));
}

void SafetensorsFolder::add_tensors(std::vector<Tensor> tensors, std::shared_ptr<const void> memory) {
  impl_->memory.push_back(std::move(memory));
  for (Tensor& tensor : tensors) {
    impl_->tensor_index.emplace(tensor.name, impl_->tensors.size());
    impl_->tensors.push_back(std::move(tensor));
  }
}

const json::Value& SafetensorsFolder::config() const {
  return impl_->config;
}
Result<std::string_view> SafetensorsFolder::text(std::string_view name) const {
  return impl_->text(name);
}
Result<std::string_view> SafetensorsFolder::text_or_nothing(std::string_view name) const {
  Result<std::string_view> found = text(name);
  if (!found && found.status().code() == ErrorCode::kNotFound) return std::string_view();
  return found;
}
const std::vector<Tensor>& SafetensorsFolder::tensors() const {
  return impl_->tensors;
}

const Tensor* SafetensorsFolder::find(std::string_view name) const {
  const auto found = impl_->tensor_index.find(name);
  return found == impl_->tensor_index.end() ? nullptr : &impl_->tensors[found->second];
}

uint64_t SafetensorsFolder::file_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, shard] : impl_->shards) bytes += shard.mapping.bytes().size();
  return bytes;
}

void SafetensorsFolder::drop_resident() const {
  for (const auto& [name, shard] : impl_->shards) shard.mapping.drop_resident();
}

}  // namespace headwater::model
