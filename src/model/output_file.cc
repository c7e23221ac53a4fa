#include "model/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "model/file_signals.h"

namespace headwater::model {

Result<OutputFile> OutputFile::create(const std::string& path) {
  struct stat there = {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return error(ErrorCode::kInvalidArgument, "'{}' is no regular file and is not replaced; write elsewhere", path);
  }
  OutputFile out(path, -1);
  set_unfinished_file(out.partial());
  out.file_ = ::open(out.partial().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (out.file_ < 0) set_unfinished_file("");
  if (out.file_ < 0) return error(ErrorCode::kNotFound, "cannot write '{}': {}", out.partial(), std::strerror(errno));
  return out;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), position_(other.position_) {}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(partial().c_str());
  set_unfinished_file("");
}

Status OutputFile::failure(const char* doing) const {
  const bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  return error(is_full ? ErrorCode::kExhausted : ErrorCode::kNotFound, "{} '{}' after {} bytes: {}{}", doing, partial(),
               position_, std::strerror(errno), is_full ? "; free space, or write elsewhere" : "");
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure("writing");
    position_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Status OutputFile::pad_to(uint64_t position) {
  static constexpr std::array<std::byte, 256> kZeros = {};
  while (position_ < position) {
    HEADWATER_RETURN_IF_ERROR(write(std::span(kZeros).first(std::min<uint64_t>(kZeros.size(), position - position_))));
  }
  return {};
}

Status OutputFile::commit() {
  if (::fsync(file_) != 0) return failure("writing");
  if (::rename(partial().c_str(), path_.c_str()) != 0) return failure("renaming");
  set_unfinished_file("");
  ::close(std::exchange(file_, -1));
  return {};
}

}  // namespace headwater::model
