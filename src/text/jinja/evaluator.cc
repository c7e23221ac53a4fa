// Expressions.
#include "text/jinja/evaluator.h"

#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/operators.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {

Result<Value> Evaluator::evaluate(const Expression& node) {
  HEADWATER_RETURN_IF_ERROR(enter(node.where));
  Result<Value> value = evaluate_node(node);
  --depth_;
  return value;
}

Result<Value> Evaluator::evaluate_node(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::kLiteral:
      return node.literal;
    case ExpressionKind::kName:
      return evaluate_name(node);
    case ExpressionKind::kCaptured:
      return std::exchange(captured_, Value());
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> items, evaluate_children(node));
      return make_list(at(node.where), std::move(items),
                       node.kind == ExpressionKind::kTuple ? ListKind::kTuple : ListKind::kList);
    }
    case ExpressionKind::kDict:
      return evaluate_dict(node);
    case ExpressionKind::kSlice:
      return evaluate_slice(node);
    case ExpressionKind::kCompare:
      return evaluate_comparison(node);
    case ExpressionKind::kConcat:
      return evaluate_concatenation(node);
    case ExpressionKind::kConditional:
      return evaluate_conditional(node);
    case ExpressionKind::kBuiltin: {
      HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> arguments, evaluate_children(node));
      return node.builtin->apply(at(node.where), arguments);
    }
    case ExpressionKind::kCall:
      return evaluate_call(node);
    case ExpressionKind::kSubscript:
    case ExpressionKind::kArithmetic:
      return evaluate_pair(node);
    default:
      return evaluate_unary(node);
  }
}

Result<Value> Evaluator::evaluate_unary(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(Value first, evaluate(*node.children[0]));
  switch (node.kind) {
    case ExpressionKind::kAttribute:
      return attribute(at(node.where), first, node.name);
    case ExpressionKind::kNot:
      return Value::of_bool(!first.truth());
    case ExpressionKind::kMinus:
      return negate(at(node.where), first);
    case ExpressionKind::kPlus:
      return arithmetic(at(node.where), Operator::kAdd, Value::of_int(0), first);
    case ExpressionKind::kAnd:
      return first.truth() ? evaluate(*node.children[1]) : std::move(first);
    case ExpressionKind::kOr:
      return first.truth() ? std::move(first) : evaluate(*node.children[1]);
    default:
      break;
  }
  check(false, "an expression of an unknown kind");
  return Value();
}

Result<Value> Evaluator::evaluate_name(const Expression& node) {
  uint64_t scanned_bytes = 0;
  const Value* found = scopes_.find(node.symbol, scanned_bytes);
  HEADWATER_RETURN_IF_ERROR(budget_.step(node.where, scanned_bytes));
  if (found != nullptr) return *found;
  return node.builtin == nullptr ? Value() : Value(Value::Held(node.builtin));
}

Result<std::vector<Value>> Evaluator::evaluate_children(const Expression& node) {
  std::vector<Value> values;
  values.reserve(node.children.size());
  for (const ExpressionPtr& child : node.children) {
    values.push_back(Value::missing());
    if (!child) continue;
    HEADWATER_ASSIGN_OR_RETURN(values.back(), evaluate(*child));
  }
  return values;
}

Result<Value> Evaluator::evaluate_dict(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_children(node));
  Entries entries;
  for (size_t i = 0; i < values.size(); i += 2) entries.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  return make_dict(at(node.where), std::move(entries));
}

Result<Value> Evaluator::evaluate_pair(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(const Value left, evaluate(*node.children[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Value right, evaluate(*node.children[1]));
  const Call call = at(node.where);
  if (node.kind == ExpressionKind::kSubscript) return subscript(call, left, right);
  return arithmetic(call, node.operators[0], left, right);
}

Result<Value> Evaluator::evaluate_slice(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_children(node));
  for (size_t i = 1; i < values.size(); ++i) {
    if (!node.children[i]) values[i] = Value::none();
  }
  return slice(at(node.where), values[0], values[1], values[2], values[3]);
}

Result<Value> Evaluator::evaluate_comparison(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(Value left, evaluate(*node.children[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(Value right, evaluate(*node.children[i + 1]));
    HEADWATER_ASSIGN_OR_RETURN(const bool holds, compare(at(node.where), node.operators[i], left, right));
    if (!holds) return Value::of_bool(false);
    left = std::move(right);
  }
  return Value::of_bool(true);
}

Result<Value> Evaluator::evaluate_concatenation(const Expression& node) {
  Text result;
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> parts, evaluate_children(node));
  for (const Value& part : parts) {
    HEADWATER_RETURN_IF_ERROR(append_text(at(node.where), part, result));
  }
  return make_text(at(node.where), std::move(result));
}

Result<Value> Evaluator::evaluate_conditional(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(const Value condition, evaluate(*node.children[1]));
  if (condition.truth()) return evaluate(*node.children[0]);
  return node.children[2] ? evaluate(*node.children[2]) : Value();
}

Result<Value> Evaluator::evaluate_call(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_children(node));
  const Macro* macro = values[0].macro();
  if (macro == nullptr) return at(node.where).wrong("{} cannot be called here", values[0].type_name());
  std::vector<Given> given;
  for (size_t i = 1; i < values.size(); ++i) given.push_back({node.names[i - 1], std::move(values[i])});
  return call_macro(node.where, *macro, given);
}

Result<Value> Evaluator::call_macro(Position where, const Macro& macro, std::span<Given> given) {
  Frame* before = scopes_.enter(macro.frame);
  const Status bound = bind(at(where), *macro.statement, given);
  Result<Text> text = bound ? capture(macro.statement->body) : Result<Text>(bound);
  scopes_.leave(before);
  if (!text) return text.status();
  return Value::of_text(std::move(*text));
}

// Positional arguments in the order of the parameters, then named ones; presets see the parameters before them.
Status Evaluator::bind(const Call& call, const Statement& macro, std::span<Given> given) {
  const std::string& name = template_.symbols.name(macro.target.symbol);
  size_t taken = 0;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const std::string& wanted = template_.symbols.name(parameter.symbol);
    const auto found = i < given.size() && given[i].name.empty()
                           ? given.begin() + static_cast<ptrdiff_t>(i)
                           : std::find_if(given.begin(), given.end(), [&](auto& one) { return one.name == wanted; });
    Value value;
    if (found != given.end()) {
      value = std::move(found->value);
      ++taken;
    } else if (parameter.preset) {
      HEADWATER_ASSIGN_OR_RETURN(value, evaluate(*parameter.preset));
    }
    scopes_.set(parameter.symbol, std::move(value));
  }
  if (taken == given.size()) return {};
  return call.wrong("the macro \"{}\" is given arguments that it has no parameters for", name);
}

}  // namespace headwater::text::jinja
