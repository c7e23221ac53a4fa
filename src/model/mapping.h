// A read-only mapping of a whole file. Shortening the file meanwhile ends the process (SIGBUS); commands say so
// (file_signals.h).
#pragma once

#include <span>
#include <string>

#include "core/core.h"

namespace headwater::model {

// Whether something has that name: also a link to nothing, and what this user may not look at.
bool is_there(const std::string& path);

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // kNotFound: nothing has that name. kInvalidArgument: it cannot be opened, or is no regular file; a pipe does not make it wait.
  // kExhausted: no address space. An empty file has no bytes.
  static Result<Mapping> create(const std::string& path);

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  // Its pages may leave this process's memory; they come back when read.
  void drop_resident() const;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace headwater::model
