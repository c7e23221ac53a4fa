#include "apps/text_file.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace headwater::apps {

Result<std::string> read_text(std::string_view option, const std::string& path, std::string_view kind,
                              size_t bytes_max) {
  std::ifstream file;
  if (path != "-") {
    if (std::error_code none; std::filesystem::is_directory(path, none)) {
      return error(ErrorCode::kInvalidArgument, "{} {} is a folder; give {}", option, path, kind);
    }
    file.open(path, std::ios::binary);
    if (!file) return error(ErrorCode::kNotFound, "{} {}: cannot be read", option, path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text;
  std::array<char, 1 << 16> piece;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > bytes_max) {
      return error(ErrorCode::kInvalidArgument, "{} {}: more than {} bytes; give {} of at most so many", option, path,
                   bytes_max, kind);
    }
  }
  if (in.bad()) return error(ErrorCode::kNotFound, "{} {}: cannot be read to its end", option, path);
  return text;
}

}  // namespace headwater::apps
