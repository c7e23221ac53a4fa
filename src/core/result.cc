#include "core/result.h"

#include <cstdio>
#include <cstdlib>

namespace headwater {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk: return "ok";
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kExhausted: return "exhausted";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

void check_failed(const char* message, std::source_location where) {
  std::fprintf(stderr, "headwater: check failed at %s:%u (%s): %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name(), message);
  std::abort();
}

}  // namespace headwater
