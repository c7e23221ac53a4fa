// Evaluates a parsed template. One per rendering.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"

namespace headwater::text::jinja {

// Names by frame: the template's own, then one for each loop iteration that is being run. A loop's frame dies with the
// iteration, so what a loop body sets is gone behind it; an if has no frame. Names are views into the parsed template.
class Scopes {
 public:
  void push() { frames_.emplace_back(); }
  void pop() { frames_.pop_back(); }
  void set(std::string_view name, Value value) { frames_.back().insert_or_assign(name, std::move(value)); }
  Value find(std::string_view name) const {  // undefined where there is none
    for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
      if (const auto found = frame->find(name); found != frame->end()) return found->second;
    }
    return Value();
  }

 private:
  std::vector<std::unordered_map<std::string_view, Value>> frames_{1};
};

class Evaluator {
 public:
  Evaluator(Budget& budget, size_t output_bytes_max) : budget_(budget), output_bytes_max_(output_bytes_max) {}

  // The name must outlive the evaluator.
  void define(std::string_view name, Value value) { scopes_.set(name, std::move(value)); }
  Status run(const Body& body);
  const Text& output() const { return output_; }

 private:
  Status run(const Statement& statement);
  Status run_for(const Statement& statement);
  Status run_set(const Statement& statement);
  Status write(Position where, const Text& text);

  Result<Value> evaluate(const Expression& node);
  Result<Value> evaluate_list(const Expression& node);
  Result<Value> evaluate_dict(const Expression& node);
  Result<Value> evaluate_comparison(const Expression& node);
  Result<Value> evaluate_concatenation(const Expression& node);
  Result<Value> evaluate_conditional(const Expression& node);
  Result<Value> evaluate_call(const Expression& node);
  Result<Value> evaluate_namespace(const Expression& node);
  Result<Value> evaluate_slice(const Expression& node);
  Result<Value> evaluate_pair(const Expression& node);  // of two operands that are both needed
  Result<std::vector<Value>> evaluate_children(const Expression& node);
  Result<std::vector<Value>> loop_items(const Statement& statement);
  Result<Value> loop_value(Position where, size_t index, size_t length);

  Budget& budget_;
  Scopes scopes_;
  Text output_;
  size_t output_bytes_max_;
};

}  // namespace headwater::text::jinja
