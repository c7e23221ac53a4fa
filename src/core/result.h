// Errors that can happen: Status and Result<T>. (What cannot happen is check.h.)
//
// No exception crosses a room. Constructors do not fail; a factory named create() or open() returns Result<T>.
// A message names the value, the limit it broke and the remedy: "page size 24 is not a multiple of 16; use 16, 32 or 64".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "core/check.h"

namespace headwater {

enum class ErrorCode : uint8_t {
  kOk,
  kInvalidArgument,  // the caller's value is wrong
  kNotFound,         // a file, tensor, key or id does not exist
  kUnsupported,      // understood, but not done here
  kCorrupt,          // a file's content contradicts its format
  kExhausted,        // pages, slots, queue or memory are used up
  kInternal,
};

const char* to_string(ErrorCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool is_ok() const { return code_ == ErrorCode::kOk; }
  explicit operator bool() const { return is_ok(); }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
};

template <typename... Args>
Status error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) {
    check(!std::get<Status>(state_).is_ok(), "a Result made from a Status needs an error");
  }

  bool is_ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return is_ok(); }
  Status status() const { return is_ok() ? Status() : std::get<Status>(state_); }

  T& value() & { return checked(); }
  const T& value() const& { return const_cast<Result*>(this)->checked(); }
  T&& value() && { return std::move(checked()); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &value(); }

 private:
  T& checked() {
    check(is_ok(), "value() of a Result that holds an error");
    return std::get<T>(state_);
  }
  std::variant<T, Status> state_;
};

}  // namespace headwater

// Returns the error of a Status expression to the caller.
#define HEADWATER_RETURN_IF_ERROR(expression)                                 \
  do {                                                                        \
    if (::headwater::Status status_ = (expression); !status_) return status_; \
  } while (false)

#define HEADWATER_CONCAT_INNER(a, b) a##b
#define HEADWATER_CONCAT(a, b) HEADWATER_CONCAT_INNER(a, b)

// HEADWATER_ASSIGN_OR_RETURN(auto file, GgufFile::open(path)): assigns the value or returns the error.
#define HEADWATER_ASSIGN_OR_RETURN(declaration, expression)                                      \
  auto HEADWATER_CONCAT(result_, __LINE__) = (expression);                                       \
  if (!HEADWATER_CONCAT(result_, __LINE__)) return HEADWATER_CONCAT(result_, __LINE__).status(); \
  declaration = std::move(HEADWATER_CONCAT(result_, __LINE__)).value()
