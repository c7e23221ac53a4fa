// The parts of a split file: name-00001-of-00003.gguf and so on. Each says which it is (split.no from 0, split.count) and
// how many tensors all have together (split.tensors.count); the first has the other metadata.
// Source: tools/gguf-split of llama.cpp.
#include "model/gguf.h"

namespace headwater::model {
namespace {

struct Place {
  uint64_t number;  // from 0
  uint64_t count;
};

Result<Place> place_of(const GgufFile& part, const std::string& path) {
  Place place{};
  HEADWATER_ASSIGN_OR_RETURN(place.number, part.unsigned_at("split.no"));
  HEADWATER_ASSIGN_OR_RETURN(place.count, part.unsigned_at("split.count"));
  if (place.number < place.count) return place;
  return error(ErrorCode::kCorrupt, "'{}': split.no is {} of a split.count of {}", path, place.number, place.count);
}

std::string ending(const Place& place) {
  return fmt::format("-{:05}-of-{:05}.gguf", place.number + 1, place.count);
}

Status check_part(const GgufFile& part, const Place& expected, const std::string& path) {
  if (part.has("split.count")) {
    HEADWATER_ASSIGN_OR_RETURN(const Place found, place_of(part, path));
    if (found.number == expected.number && found.count == expected.count) return {};
    return error(ErrorCode::kCorrupt, "'{}' says that it is part {} of {}; its name says part {} of {}", path,
                 found.number + 1, found.count, expected.number + 1, expected.count);
  }
  return error(ErrorCode::kCorrupt, "'{}' is no part of a split file; its name says part {} of {}", path,
               expected.number + 1, expected.count);
}

}  // namespace

Result<GgufFile> GgufFile::open_split(GgufFile any, const std::string& path) {
  HEADWATER_ASSIGN_OR_RETURN(const Place place, place_of(any, path));
  if (place.count == 1) return any;
  if (!path.ends_with(ending(place))) {
    return error(ErrorCode::kNotFound, "'{}' is part {} of {}; to find the others it has to be named ...{}", path,
                 place.number + 1, place.count, ending(place));
  }
  const std::string prefix = path.substr(0, path.size() - ending(place).size());
  std::vector<GgufFile> parts;
  for (uint64_t number = 0; number < place.count; ++number) {
    if (number == place.number) {
      parts.push_back(std::move(any));
      continue;
    }
    const std::string other = prefix + ending({number, place.count});
    auto part = open_part(other);
    if (!part) {
      return error(part.status().code(), "part {} of {}: {}", number + 1, place.count, part.status().message());
    }
    HEADWATER_RETURN_IF_ERROR(check_part(*part, {number, place.count}, other));
    parts.push_back(std::move(*part));
  }
  GgufFile file = std::move(parts[0]);
  for (uint64_t number = 1; number < place.count; ++number) {
    HEADWATER_RETURN_IF_ERROR(file.add_part(std::move(parts[number]), prefix + ending({number, place.count})));
  }
  if (file.has("split.tensors.count")) {
    HEADWATER_ASSIGN_OR_RETURN(const uint64_t expected, file.unsigned_at("split.tensors.count"));
    if (expected != file.tensors().size()) {
      return error(ErrorCode::kCorrupt, "the {} parts of '{}' hold {} tensors; split.tensors.count is {}", place.count,
                   path, file.tensors().size(), expected);
    }
  }
  return file;
}

}  // namespace headwater::model
