// A file that is there whole or not at all: written beside its name, renamed at the end.
#pragma once

#include <unistd.h>

#include <span>
#include <string>

#include "core/core.h"

namespace headwater::model {

class OutputFile {
 public:
  // kNotFound: the folder is not there or may not be written; kInvalidArgument: the name is something else than a file.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // without commit(): nothing is left

  // kExhausted: the disk is full, or a limit on file sizes.
  Status write(std::span<const std::byte> bytes);
  Status pad_to(uint64_t position);  // zeros; at or behind position()
  uint64_t position() const { return position_; }
  // On disk, then under its name; what had that name before is replaced.
  Status commit();

 private:
  OutputFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string partial() const { return fmt::format("{}.{}.partial", path_, getpid()); }  // of this process alone
  Status failure(const char* doing) const;

  std::string path_;
  int file_;  // -1: committed or moved from
  uint64_t position_ = 0;
};

}  // namespace headwater::model
