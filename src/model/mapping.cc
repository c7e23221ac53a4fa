#include "model/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace headwater::model {
namespace {

Result<std::span<std::byte>> map(int file, const std::string& path) {
  struct stat info = {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return error(ErrorCode::kInvalidArgument, "'{}' is {}; expected a file", path,
                 S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device");
  }
  if (info.st_size == 0) return std::span<std::byte>();
  const auto size = static_cast<size_t>(info.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (start == MAP_FAILED) {
    return error(ErrorCode::kExhausted, "cannot map the {} bytes of '{}': {}", size, path, std::strerror(errno));
  }
  return std::span(static_cast<std::byte*>(start), size);
}

Status cannot_open(const std::string& path, int reason) {
  if (!is_there(path)) return error(ErrorCode::kNotFound, "cannot open '{}': {}", path, std::strerror(reason));
  const bool leads_nowhere = reason == ENOENT;
  return error(ErrorCode::kInvalidArgument, "'{}' is there but cannot be opened: {}", path,
               leads_nowhere ? "it is a link to a file that is not there" : std::strerror(reason));
}

}  // namespace

bool is_there(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

Mapping::Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}
Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<Mapping> Mapping::create(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return cannot_open(path, errno);
  auto bytes = map(file, path);
  ::close(file);
  if (!bytes) return bytes.status();
  Mapping mapping;
  mapping.bytes_ = *bytes;
  return mapping;
}

void Mapping::drop_resident() const {
  if (!bytes_.empty()) madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED);
}

}  // namespace headwater::model
