// Which value a name has. Frames nest as the template's text does: its own, then one for each run of a loop's body, a
// macro or a block. A name belongs to the innermost frame that has it; a frame dies with its run, so what a loop's body
// sets is gone behind it. An `if` has no frame. A macro sees the frame that it was defined in, as it is when the macro
// is called; frames that a macro may still see live until the rendering ends.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "text/jinja/ast.h"

namespace headwater::text::jinja {

struct Frame {
  Frame* outer = nullptr;
  bool is_kept = false;  // a macro was defined in it, or in one inside of it
  std::vector<Symbol> symbols;
  std::vector<Value> values;  // of the symbols
};

struct Macro {
  const Statement* statement;
  Frame* frame;  // that it was defined in
};

class Scopes {
 public:
  Scopes() { enter(nullptr); }

  // Begins a frame inside of outer; gives the frame that was current, for leave().
  Frame* enter(Frame* outer) {
    if (spare_.empty()) {
      frames_.push_back(std::make_unique<Frame>());
      spare_.push_back(frames_.back().get());
    }
    Frame* before = current_;
    current_ = spare_.back();
    spare_.pop_back();
    current_->outer = outer;
    return before;
  }
  void leave(Frame* before) {
    if (!current_->is_kept) {
      current_->symbols.clear();
      current_->values.clear();
      spare_.push_back(current_);
    }
    current_ = before;
  }
  Frame* current() const { return current_; }
  void keep_current() {
    for (Frame* frame = current_; frame != nullptr && !frame->is_kept; frame = frame->outer) frame->is_kept = true;
  }

  void set(Symbol symbol, Value value) {
    const auto found = std::find(current_->symbols.begin(), current_->symbols.end(), symbol);
    if (found != current_->symbols.end()) {
      current_->values[static_cast<size_t>(found - current_->symbols.begin())] = std::move(value);
    } else {
      current_->symbols.push_back(symbol);
      current_->values.push_back(std::move(value));
    }
  }
  // Null where the name has no value. Adds the bytes that were looked at.
  const Value* find(Symbol symbol, uint64_t& scanned_bytes) const {
    for (const Frame* frame = current_; frame != nullptr; frame = frame->outer) {
      const auto found = std::find(frame->symbols.begin(), frame->symbols.end(), symbol);
      scanned_bytes += sizeof(Symbol) * (1 + frame->symbols.size());
      if (found != frame->symbols.end()) return &frame->values[static_cast<size_t>(found - frame->symbols.begin())];
    }
    return nullptr;
  }

 private:
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Frame*> spare_;
  Frame* current_ = nullptr;
};

}  // namespace headwater::text::jinja
