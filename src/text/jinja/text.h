// A string that knows, for each of its bytes, whether the template wrote it (owned) or it came from a message. Every
// operation keeps the marks, so text from a message can never pass for the template's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  size_t footprint() const { return sizeof(Text) + bytes_.size() + runs_.size() * sizeof(Run); }  // bytes of memory

  void append(std::string_view valid_utf8, bool owned);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);  // bytes [begin, end) of other
  Text slice(size_t begin, size_t end) const;
  Text with_ascii_case(bool upper) const;  // letters outside ASCII stay as they are

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

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
