// Evaluates a parsed template. One per rendering.
//
// The host's stack is bounded: every evaluation of a node inside of another one, also through macros, counts as a level,
// and there are at most kDepthMax.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/scopes.h"

namespace headwater::text::jinja {

class Evaluator {
 public:
  static constexpr uint32_t kDepthMax = 1500;

  Evaluator(const Template& source, Budget& budget, const std::tm& now, size_t output_bytes_max)
      : template_(source), budget_(budget), now_(now), output_bytes_max_(output_bytes_max) {}

  void define(Symbol name, Value value) { scopes_.set(name, std::move(value)); }
  Status run() { return run(template_.body); }
  const Text& output() const { return output_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Given {  // to a macro
    std::string_view name;
    Value value;
  };

  Call at(Position where) { return {where, budget_, now_}; }
  Status enter(Position where);  // a level deeper, which takes a step

  Status run(const Body& body);
  Status run(const Statement& statement);
  Status run_statement(const Statement& statement);
  Status run_if(const Statement& statement);
  Status run_for(const Statement& statement);
  Status run_loop(const Statement& statement, Loop& loop, const Value& value, bool& is_completed);
  Status run_set(const Statement& statement);
  Status run_block(const Statement& statement);
  Status run_scope(const Statement& statement);
  Status run_inside(const Body& body);  // in a frame of its own
  Status assign(Position where, const Target& target, Value value);
  Status set_attribute(Position where, const Target& target, Value value);
  Status write(Position where, const Value& value);
  Result<Text> capture(const Body& body);
  Result<std::vector<Value>> loop_items(const Statement& statement);

  Result<Value> evaluate(const Expression& node);
  Result<Value> evaluate_node(const Expression& node);
  Result<Value> evaluate_unary(const Expression& node);
  Result<Value> evaluate_name(const Expression& node);
  Result<Value> evaluate_dict(const Expression& node);
  Result<Value> evaluate_comparison(const Expression& node);
  Result<Value> evaluate_concatenation(const Expression& node);
  Result<Value> evaluate_conditional(const Expression& node);
  Result<Value> evaluate_call(const Expression& node);
  Result<Value> evaluate_slice(const Expression& node);
  Result<Value> evaluate_pair(const Expression& node);  // of two operands that are both needed
  Result<std::vector<Value>> evaluate_children(const Expression& node);
  Result<Value> call_macro(Position where, const Macro& macro, std::span<Given> given);
  Status bind(const Call& call, const Statement& macro, std::span<Given> given);

  const Template& template_;
  Budget& budget_;
  const std::tm& now_;
  Scopes scopes_;
  Text output_;
  Text* out_ = &output_;  // output_, or the text that is captured
  Value captured_;        // what a block's filter is applied to
  Flow flow_ = Flow::kNext;
  uint32_t depth_ = 0;
  size_t output_bytes_max_;
};

}  // namespace headwater::text::jinja
