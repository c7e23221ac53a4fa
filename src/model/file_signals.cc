// Handlers do nothing but what signal-safety(7) allows: system calls, and memory of their own.
#include "model/file_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace headwater::model {
namespace {

std::array<char, PATH_MAX> unfinished;  // ends with a zero
std::atomic<bool> is_unfinished = false;

void remove_unfinished() {
  if (is_unfinished) ::unlink(unfinished.data());
}

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Reads the lines of /proc/self/maps: "7f00-7f80 r--p 00000000 08:01 42      /models/a.gguf".
class Maps {
 public:
  Maps() : file_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}

  // The name of the file that is mapped at an address; empty when there is none.
  std::string_view name_at(uintptr_t address) {
    while (fill()) {
      const uintptr_t begin = number(), end = number();
      for (int field = 0; field < 4; ++field) skip_field();
      size_t length = 0;
      for (; at() != '\n' && at() != '\0' && length < name_.size(); ++begin_) name_[length++] = at() < ' ' ? '?' : at();
      while (at() != '\n' && fill()) ++begin_;
      ++begin_;
      if (address >= begin && address < end) return {name_.data(), length};
    }
    return {};
  }

 private:
  bool fill() {  // whether a character is there
    if (begin_ < end_) return true;
    const ssize_t bytes = file_ < 0 ? 0 : ::read(file_, buffer_.data(), buffer_.size());
    begin_ = 0;
    end_ = static_cast<size_t>(std::max<ssize_t>(bytes, 0));
    return end_ > 0;
  }
  char at() { return fill() ? buffer_[begin_] : '\0'; }
  void skip_spaces() {
    while (at() == ' ') ++begin_;
  }
  void skip_field() {
    while (at() != ' ' && at() != '\n' && at() != '\0') ++begin_;
    skip_spaces();
  }
  uintptr_t number() {  // hexadecimal, and the character behind it
    uintptr_t value = 0;
    for (; (at() >= '0' && at() <= '9') || (at() >= 'a' && at() <= 'f'); ++begin_) {
      value = value * 16 + static_cast<uintptr_t>(at() <= '9' ? at() - '0' : at() - 'a' + 10);
    }
    if (at() == '-') ++begin_;
    skip_spaces();
    return value;
  }

  int file_;
  size_t begin_ = 0, end_ = 0;  // of what of buffer_ is not read yet
  std::array<char, 4096> buffer_;
  std::array<char, PATH_MAX> name_;
};

void on_lost_page(int signal, siginfo_t* info, void*) {
  static std::atomic_flag is_told = ATOMIC_FLAG_INIT;
  while (is_told.test_and_set()) ::pause();  // another thread tells it
  Maps maps;
  const bool is_fault = info->si_code > 0;  // and not sent by a process, which gives no address
  const std::string_view name = is_fault ? maps.name_at(reinterpret_cast<uintptr_t>(info->si_addr)) : "";
  if (name.empty()) {  // no file's page: the usual end
    remove_unfinished();
    std::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  put("headwater: ");
  put(name);
  put(": the file became shorter while it was in use, or its disk fails; replace a model by renaming a new file over "
      "it\n");
  remove_unfinished();
  ::_exit(1);
}

void on_end(int signal) {
  remove_unfinished();
  ::raise(signal);  // SA_RESETHAND: what it does without a handler
}

}  // namespace

void explain_lost_pages() {
  struct sigaction action = {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

void remove_unfinished_file_on_signals() {
  struct sigaction action = {}, before = {};
  action.sa_handler = on_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT}) {
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup, and jobs in the background
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write()
}

void set_unfinished_file(const std::string& path) {
  is_unfinished = false;
  if (path.empty() || path.size() >= unfinished.size()) return;
  std::memcpy(unfinished.data(), path.c_str(), path.size() + 1);
  is_unfinished = true;
}

}  // namespace headwater::model
