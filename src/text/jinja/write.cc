#include "text/jinja/write.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>

namespace headwater::text::jinja {
namespace {

// As Python's repr(float): the shortest digits that give the number back, always recognisable as a float.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Python's str.isprintable(), of Unicode 15 where Python 3.11 has 14.
bool is_printable(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return c == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

void append_string_repr(const Text& text, Text& out) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const char quote = has_single && text.bytes().find('"') == std::string::npos ? '"' : '\'';
  out.append({&quote, 1}, true);
  out.append_rewritten(text, [quote](char32_t c, std::string& bytes) {
    if (c == '\n') {
      bytes += "\\n";
    } else if (c == '\r') {
      bytes += "\\r";
    } else if (c == '\t') {
      bytes += "\\t";
    } else if (!is_printable(c)) {
      const auto code = static_cast<uint32_t>(c);
      bytes += c < 0x100     ? fmt::format("\\x{:02x}", code)
               : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                             : fmt::format("\\U{:08x}", code);
    } else {
      if (c == '\\' || c == static_cast<char32_t>(quote)) bytes += '\\';
      append_utf8(c, bytes);
    }
  });
  out.append({&quote, 1}, true);
}

void append_json_string(const Text& text, bool ensure_ascii, Text& out) {
  out.append("\"", true);
  out.append_rewritten(text, [ensure_ascii](char32_t c, std::string& bytes) {
    static constexpr std::string_view kNamed = "\"\"\\\\\nn\rr\tt\ff\bb";  // a character, its letter, ...
    size_t at = 0;
    while (at < kNamed.size() && static_cast<char32_t>(kNamed[at]) != c) at += 2;
    if (at < kNamed.size()) {
      bytes += {'\\', kNamed[at + 1]};
    } else if (c >= 0x10000 && ensure_ascii) {
      const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
      bytes += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else if (c < 0x20 || (c >= 0x7F && ensure_ascii)) {
      bytes += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      append_utf8(c, bytes);
    }
  });
  out.append("\"", true);
}

// Takes from the budget what a writer appended to a text, one value after the other: a string becomes at most ten times as
// long, so what is not paid for yet is small beside what was.
class Meter {
 public:
  Meter(const Call& call, Text& out) : call_(call), out_(out), bytes_(out.size()) {}
  Status charge() {
    const size_t added = out_.size() - bytes_;
    bytes_ = out_.size();
    HEADWATER_RETURN_IF_ERROR(call_.rewrite(8 + added));  // 8: the work for a value and its key, however short
    return call_.build(added);
  }

 private:
  const Call& call_;
  Text& out_;
  size_t bytes_;
};

class ReprWriter {
 public:
  ReprWriter(const Call& call, Text& out) : call_(call), out_(out), meter_(call, out) {}

  // Recursion ends: lists and dicts nest to a bounded depth.
  Status write(const Value& value) {
    if (value.list() != nullptr) {
      HEADWATER_RETURN_IF_ERROR(write_list(*value.list()));
    } else if (value.dict() != nullptr) {
      HEADWATER_RETURN_IF_ERROR(write_dict(*value.dict()));
    } else if (value.text() != nullptr) {
      if (value.text()->is_safe()) return call_.unsupported("a safe string inside of a list or mapping");
      append_string_repr(*value.text(), out_);
    } else if (value.is_undefined()) {
      out_.append("Undefined", true);
    } else {
      HEADWATER_RETURN_IF_ERROR(append_text(call_, value, out_));
    }
    return meter_.charge();
  }

 private:
  Status write_list(const List& list) {
    if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) {
      return call_.unsupported("a sequence that is no list cannot be written as text here; use the filter \"list\"");
    }
    const bool is_tuple = list.kind == ListKind::kTuple;
    out_.append(is_tuple ? "(" : "[", true);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(", ", true);
      HEADWATER_RETURN_IF_ERROR(write(list.items[i]));
    }
    out_.append(!is_tuple ? "]" : list.items.size() == 1 ? ",)" : ")", true);
    return {};
  }

  Status write_dict(const Dict& dict) {
    out_.append("{", true);
    for (const auto& entry : dict.entries) {
      if (&entry != &dict.entries.front()) out_.append(", ", true);
      HEADWATER_RETURN_IF_ERROR(write(entry.first));
      out_.append(": ", true);
      HEADWATER_RETURN_IF_ERROR(write(entry.second));
    }
    out_.append("}", true);
    return {};
  }

  const Call& call_;
  Text& out_;
  Meter meter_;
};

std::optional<std::string> json_scalar(const Value& value) {
  if (value.is_none()) return "null";
  if (const bool* held = value.boolean()) return *held ? "true" : "false";
  if (const int64_t* held = value.integer()) return fmt::format("{}", *held);
  const double* held = value.floating();
  if (held == nullptr) return std::nullopt;
  if (std::isnan(*held)) return "NaN";
  return std::isinf(*held) ? (*held > 0 ? "Infinity" : "-Infinity") : float_text(*held);
}

class JsonWriter {
 public:
  JsonWriter(const Call& call, const JsonStyle& style, Text& out)
      : call_(call), style_(style), out_(out), meter_(call, out) {}

  Status write(const Value& value, size_t level) {
    const List* list = value.list();
    if (value.text() != nullptr) {
      append_json_string(*value.text(), style_.ensure_ascii, out_);
    } else if (const auto scalar = json_scalar(value)) {
      out_.append(*scalar, true);
    } else if (value.dict() != nullptr) {
      HEADWATER_RETURN_IF_ERROR(write_dict(*value.dict(), level));
    } else if (list != nullptr && (list->kind == ListKind::kList || list->kind == ListKind::kTuple)) {
      HEADWATER_RETURN_IF_ERROR(write_list(*list, level));
    } else {
      return call_.wrong("{} cannot be written as JSON",
                         list != nullptr ? "a sequence that is no list" : value.type_name());
    }
    return meter_.charge();
  }

 private:
  void new_line(size_t level) {
    if (!style_.indent) return;
    out_.append("\n", true);
    for (size_t i = 0; i < level; ++i) out_.append(*style_.indent);
  }

  Status write_list(const List& list, size_t level) {
    out_.append("[", true);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      HEADWATER_RETURN_IF_ERROR(write(list.items[i], level + 1));
    }
    if (!list.items.empty()) new_line(level);
    out_.append("]", true);
    return {};
  }

  Status write_dict(const Dict& dict, size_t level) {
    Entries sorted;
    if (style_.sort_keys) {
      for (const auto& entry : dict.entries) {
        if (entry.first.text() == nullptr) return call_.unsupported("keys that are no strings cannot be sorted here");
      }
      HEADWATER_RETURN_IF_ERROR(call_.step(dict.scan_bytes()));
      sorted = dict.entries;
      std::stable_sort(sorted.begin(), sorted.end(),
                       [](const auto& a, const auto& b) { return a.first.text()->bytes() < b.first.text()->bytes(); });
    }
    const Entries& entries = style_.sort_keys ? sorted : dict.entries;
    out_.append("{", true);
    for (const auto& entry : entries) {
      if (&entry != &entries.front()) out_.append(style_.item_separator);
      new_line(level + 1);
      const auto scalar = json_scalar(entry.first);
      append_json_string(scalar ? Text(*scalar, true) : *entry.first.text(), style_.ensure_ascii, out_);
      out_.append(style_.key_separator);
      HEADWATER_RETURN_IF_ERROR(write(entry.second, level + 1));
    }
    if (!entries.empty()) new_line(level);
    out_.append("}", true);
    return {};
  }

  const Call& call_;
  const JsonStyle& style_;
  Text& out_;
  Meter meter_;
};

}  // namespace

Status append_text(const Call& call, const Value& value, Text& out) {
  if (const Text* text = value.text()) {
    HEADWATER_RETURN_IF_ERROR(call.build(text->size()));
    HEADWATER_RETURN_IF_ERROR(call.step(text->size()));
    out.append(*text);
  } else if (value.is_none()) {
    out.append("None", true);
  } else if (const bool* boolean = value.boolean()) {
    out.append(*boolean ? "True" : "False", true);
  } else if (const int64_t* integer = value.integer()) {
    out.append(fmt::format("{}", *integer), true);
  } else if (const double* floating = value.floating()) {
    out.append(float_text(*floating), true);
  } else if (value.list() != nullptr || value.dict() != nullptr) {
    return ReprWriter(call, out).write(value);
  } else if (!value.is_undefined()) {
    return call.unsupported("{} cannot be written as text here", value.type_name());
  }
  return {};
}

Result<Text> to_text(const Call& call, const Value& value) {
  if (value.text() != nullptr) return *value.text();
  Text out;
  HEADWATER_RETURN_IF_ERROR(append_text(call, value, out));
  return out;
}

Result<Text> to_repr(const Call& call, const Value& value) {
  Text out;
  HEADWATER_RETURN_IF_ERROR(ReprWriter(call, out).write(value));
  return out;
}

Result<Text> to_json(const Call& call, const Value& value, const JsonStyle& style) {
  Text out;
  HEADWATER_RETURN_IF_ERROR(JsonWriter(call, style, out).write(value, 0));
  return out;
}

Text escaped(const Text& text) {
  Text out;
  out.append_rewritten(text, [](char32_t c, std::string& bytes) {
    switch (c) {
      case '&':
        bytes += "&amp;";
        break;
      case '<':
        bytes += "&lt;";
        break;
      case '>':
        bytes += "&gt;";
        break;
      case '"':
        bytes += "&#34;";
        break;
      case '\'':
        bytes += "&#39;";
        break;
      default:
        append_utf8(c, bytes);
    }
  });
  out.set_safe(true);
  return out;
}

}  // namespace headwater::text::jinja
