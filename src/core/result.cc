#include "core/result.h"

#include <cstdio>
#include <cstdlib>

namespace headwater {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

void check_failed(const char* message, const char* file, unsigned line, const char* function) {
  std::fprintf(stderr, "headwater: check failed at %s:%u (%s): %s\n", file, line, function, message);
  std::abort();
}

}  // namespace headwater
