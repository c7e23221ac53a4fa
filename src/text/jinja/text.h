// A string that knows, for each of its bytes, whether the template wrote it (owned) or it came from a message. Every
// operation keeps the marks, so text from a message can never pass for the template's.
//
// A safe string is what the filter "safe" gives (markupsafe's Markup): what is added to it is escaped as HTML. Slices of
// a safe string are safe; what is appended to a string does not change what the string is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace headwater::text::jinja {

class Text {
 public:
  struct Run {
    size_t end;  // byte offset behind the run
    bool owned;
  };

  Text() = default;
  Text(std::string_view valid_utf8, bool owned) { append(valid_utf8, owned); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }  // neighbours differ in ownership; none is empty
  // Bytes of memory as a value of its own; generous, since small values take more time than memory.
  size_t footprint() const { return 384 + bytes_.size() + runs_.size() * sizeof(Run); }
  bool is_owned(size_t at) const;  // the byte there
  bool is_safe() const { return is_safe_; }
  void set_safe(bool is_safe) { is_safe_ = is_safe; }

  void append(std::string_view valid_utf8, bool owned);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);  // bytes [begin, end) of other
  // What write(code_point, bytes) appends for each character of other, under the character's own mark.
  template <typename Write>
  void append_rewritten(const Text& other, Write&& write);
  Text slice(size_t begin, size_t end) const;

 private:
  void mark(bool owned);  // what bytes_ has behind the last run
  std::vector<Run>::const_iterator run_of(size_t at) const;

  std::string bytes_;
  std::vector<Run> runs_;
  bool is_safe_ = false;
};

template <typename Write>
void Text::append_rewritten(const Text& other, Write&& write) {
  size_t begin = 0;
  for (const Run& run : other.runs_) {
    std::string_view rest = std::string_view(other.bytes_).substr(begin, run.end - begin);
    while (!rest.empty()) {
      const Utf8Character character = first_character(rest);
      write(character.code_point, bytes_);
      rest.remove_prefix(character.bytes);
    }
    mark(run.owned);
    begin = run.end;
  }
}

// What Python's str.isspace() calls white space.
bool is_white_space(char32_t code_point);

// The half-open byte range of text that is left when characters are taken off its ends: white space, or, where given,
// any character of set. set is valid UTF-8.
struct Range {
  size_t begin;
  size_t end;
};
Range strip(std::string_view text, const std::string_view* set, bool left, bool right);

}  // namespace headwater::text::jinja
