#include "text/jinja/evaluator.h"

#include "text/jinja/access.h"
#include "text/jinja/operators.h"

namespace headwater::text::jinja {

Status Evaluator::run(const Body& body) {
  for (const Statement& statement : body) HEADWATER_RETURN_IF_ERROR(run(statement));
  return {};
}

Status Evaluator::run(const Statement& statement) {
  HEADWATER_RETURN_IF_ERROR(budget_.step(statement.where));
  switch (statement.kind) {
    case StatementKind::kData:
      return write(statement.where, *statement.literal.text());
    case StatementKind::kOutput: {
      HEADWATER_ASSIGN_OR_RETURN(const Value value, evaluate(*statement.expression));
      HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(statement.where, value));
      return write(statement.where, text);
    }
    case StatementKind::kSet:
      return run_set(statement);
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kIf:
      break;
  }
  for (const Branch& branch : statement.branches) {
    HEADWATER_ASSIGN_OR_RETURN(const Value condition, evaluate(*branch.condition));
    if (condition.truth()) return run(branch.body);
  }
  return run(statement.otherwise);
}

Status Evaluator::write(Position where, const Text& text) {
  if (text.size() > output_bytes_max_ - output_.size()) {
    return error_at(where, ErrorCode::kExhausted, "the template writes more than {} bytes", output_bytes_max_);
  }
  HEADWATER_RETURN_IF_ERROR(budget_.step(where, text.size()));
  output_.append(text);
  return {};
}

Status Evaluator::run_set(const Statement& statement) {
  HEADWATER_ASSIGN_OR_RETURN(Value value, evaluate(*statement.expression));
  if (statement.attribute.empty()) {
    scopes_.set(statement.name, std::move(value));
    return {};
  }
  const Value object = scopes_.find(statement.name);
  if (object.space() == nullptr) {
    return error_at(statement.where, ErrorCode::kInvalidArgument, "\"{}\" is {}; only a namespace takes attributes",
                    statement.name, object.type_name());
  }
  HEADWATER_RETURN_IF_ERROR(check_storable(statement.where, value));
  HEADWATER_RETURN_IF_ERROR(budget_.step(statement.where, object.space()->attributes.size() * sizeof(Value)));
  object.space()->set(statement.attribute, std::move(value));
  return {};
}

Result<std::vector<Value>> Evaluator::loop_items(const Statement& statement) {
  HEADWATER_ASSIGN_OR_RETURN(const Value sequence, evaluate(*statement.expression));
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> items, items_of({statement.where, budget_}, sequence));
  const Expression* filter = statement.branches[0].condition.get();
  if (filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    scopes_.push();
    scopes_.set(statement.name, item);
    scopes_.set("loop", Value());  // the loop's own begins only behind the filter
    const Result<Value> condition = evaluate(*filter);
    scopes_.pop();
    if (!condition) return condition.status();
    if (condition->truth()) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Value> Evaluator::loop_value(Position where, size_t index, size_t length) {
  const auto number = [](size_t value) { return Value::of_int(static_cast<int64_t>(value)); };
  auto loop = std::make_shared<Namespace>();
  loop->attributes = {{"index", number(index + 1)},
                      {"index0", number(index)},
                      {"revindex", number(length - index)},
                      {"revindex0", number(length - index - 1)},
                      {"first", Value::of_bool(index == 0)},
                      {"last", Value::of_bool(index + 1 == length)},
                      {"length", number(length)}};
  HEADWATER_RETURN_IF_ERROR(budget_.build(where, loop->attributes.size() * sizeof(loop->attributes[0])));
  return Value(Value::Held(std::move(loop)));
}

Status Evaluator::run_for(const Statement& statement) {
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> items, loop_items(statement));
  for (size_t i = 0; i < items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(Value loop, loop_value(statement.where, i, items.size()));
    scopes_.push();
    scopes_.set("loop", std::move(loop));
    scopes_.set(statement.name, items[i]);
    const Status status = run(statement.branches[0].body);
    scopes_.pop();
    HEADWATER_RETURN_IF_ERROR(status);
  }
  if (!items.empty()) return {};
  scopes_.push();
  const Status status = run(statement.otherwise);
  scopes_.pop();
  return status;
}

Result<Value> Evaluator::evaluate(const Expression& node) {
  HEADWATER_RETURN_IF_ERROR(budget_.step(node.where));
  switch (node.kind) {
    case ExpressionKind::kLiteral:
      return node.literal;
    case ExpressionKind::kName:
      return scopes_.find(node.name);
    case ExpressionKind::kList:
      return evaluate_list(node);
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
    case ExpressionKind::kCall:
      return evaluate_call(node);
    case ExpressionKind::kNamespace:
      return evaluate_namespace(node);
    case ExpressionKind::kSubscript:
    case ExpressionKind::kArithmetic:
      return evaluate_pair(node);
    default:
      break;
  }
  HEADWATER_ASSIGN_OR_RETURN(const Value first, evaluate(*node.children[0]));
  switch (node.kind) {
    case ExpressionKind::kAttribute:
      return attribute({node.where, budget_}, first, node.name);
    case ExpressionKind::kNot:
      return Value::of_bool(!first.truth());
    case ExpressionKind::kMinus:
      return negate({node.where, budget_}, first);
    case ExpressionKind::kPlus:
      return arithmetic({node.where, budget_}, Operator::kAdd, Value::of_int(0), first);
    case ExpressionKind::kAnd:
      return first.truth() ? evaluate(*node.children[1]) : first;
    case ExpressionKind::kOr:
      return first.truth() ? first : evaluate(*node.children[1]);
    default:
      break;
  }
  check(false, "an expression of an unknown kind");
  return Value();
}

Result<std::vector<Value>> Evaluator::evaluate_children(const Expression& node) {
  std::vector<Value> values;
  for (const ExpressionPtr& child : node.children) {
    values.emplace_back();
    if (!child) continue;
    HEADWATER_ASSIGN_OR_RETURN(values.back(), evaluate(*child));
  }
  return values;
}

Result<Value> Evaluator::evaluate_list(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> items, evaluate_children(node));
  return make_list(node.where, budget_, std::move(items));
}

Result<Value> Evaluator::evaluate_dict(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_children(node));
  std::vector<std::pair<Text, Value>> entries;
  for (size_t i = 0; i < values.size(); i += 2) {
    if (values[i].text() == nullptr) {
      return error_at(node.children[i]->where, ErrorCode::kUnsupported, "{} as a key; only strings are known here",
                      values[i].type_name());
    }
    entries.emplace_back(*values[i].text(), std::move(values[i + 1]));
  }
  return make_dict(node.where, budget_, std::move(entries));
}

Result<Value> Evaluator::evaluate_pair(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(const Value left, evaluate(*node.children[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Value right, evaluate(*node.children[1]));
  const Call call{node.where, budget_};
  if (node.kind == ExpressionKind::kSubscript) return subscript(call, left, right);
  return arithmetic(call, node.operators[0], left, right);
}

Result<Value> Evaluator::evaluate_slice(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_children(node));
  for (size_t i = 1; i < values.size(); ++i) {
    if (!node.children[i]) values[i] = Value::none();
  }
  return slice({node.where, budget_}, values[0], values[1], values[2], values[3]);
}

Result<Value> Evaluator::evaluate_comparison(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(Value left, evaluate(*node.children[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(Value right, evaluate(*node.children[i + 1]));
    HEADWATER_ASSIGN_OR_RETURN(const bool holds, compare({node.where, budget_}, node.operators[i], left, right));
    if (!holds) return Value::of_bool(false);
    left = std::move(right);
  }
  return Value::of_bool(true);
}

Result<Value> Evaluator::evaluate_concatenation(const Expression& node) {
  Text result;
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> parts, evaluate_children(node));
  for (const Value& part : parts) {
    HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(node.where, part));
    HEADWATER_RETURN_IF_ERROR(budget_.build(node.where, text.footprint()));
    result.append(text);
  }
  return Value::of_text(std::move(result));
}

Result<Value> Evaluator::evaluate_conditional(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(const Value condition, evaluate(*node.children[1]));
  if (condition.truth()) return evaluate(*node.children[0]);
  return node.children[2] ? evaluate(*node.children[2]) : Value();
}

Result<Value> Evaluator::evaluate_call(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> arguments, evaluate_children(node));
  return node.builtin->apply({node.where, budget_}, arguments);
}

Result<Value> Evaluator::evaluate_namespace(const Expression& node) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_children(node));
  HEADWATER_RETURN_IF_ERROR(budget_.build(node.where, sizeof(Namespace) + values.size() * sizeof(Namespace)));
  const auto space = std::make_shared<Namespace>();
  for (size_t i = 0; i < values.size(); ++i) {
    HEADWATER_RETURN_IF_ERROR(check_storable(node.where, values[i]));
    space->set(node.names[i], std::move(values[i]));
  }
  return Value(Value::Held(space));
}

}  // namespace headwater::text::jinja
