// Statements: what a template does, in the order of its text.
#include "text/jinja/access.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {

Status Evaluator::enter(Position where) {
  if (depth_ == kDepthMax) {
    return error_at(where, ErrorCode::kExhausted,
                    "the template's macros call each other more than {} levels deep; use a template that recurs less",
                    kDepthMax);
  }
  ++depth_;
  return budget_.step(where);
}

Status Evaluator::run(const Body& body) {
  for (const Statement& statement : body) {
    HEADWATER_RETURN_IF_ERROR(run(statement));
    if (flow_ != Flow::kNext) break;
  }
  return {};
}

Status Evaluator::run(const Statement& statement) {
  HEADWATER_RETURN_IF_ERROR(enter(statement.where));
  const Status status = run_statement(statement);
  --depth_;
  return status;
}

Status Evaluator::run_statement(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kData:
      return write(statement.where, statement.literal);
    case StatementKind::kOutput: {
      HEADWATER_ASSIGN_OR_RETURN(const Value value, evaluate(*statement.expression));
      return write(statement.where, value);
    }
    case StatementKind::kSet:
      return run_set(statement);
    case StatementKind::kSetBlock:
    case StatementKind::kFilter:
      return run_block(statement);
    case StatementKind::kIf:
      return run_if(statement);
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kMacro:
      HEADWATER_RETURN_IF_ERROR(budget_.build(statement.where, 4096));  // the macro, and the frames that it keeps
      scopes_.keep_current();
      scopes_.set(statement.target.symbol, Value(Value::Held(std::make_shared<const Macro>(
                                               Macro{.statement = &statement, .frame = scopes_.current()}))));
      return {};
    case StatementKind::kScope:
      return run_scope(statement);
    case StatementKind::kBreak:
      flow_ = Flow::kBreak;
      return {};
    case StatementKind::kContinue:
      flow_ = Flow::kContinue;
      return {};
  }
  return {};
}

Status Evaluator::run_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    HEADWATER_ASSIGN_OR_RETURN(const Value condition, evaluate(*branch.condition));
    if (condition.truth()) return run(branch.body);
  }
  return run(statement.otherwise);
}

Status Evaluator::run_inside(const Body& body) {
  Frame* before = scopes_.enter(scopes_.current());
  const Status status = run(body);
  scopes_.leave(before);
  return status;
}

// The names of a `with` are its body's; their values are of outside.
Status Evaluator::run_scope(const Statement& statement) {
  std::vector<Value> values(statement.parameters.size());
  for (size_t i = 0; i < values.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(values[i], evaluate(*statement.parameters[i].preset));
  }
  Frame* before = scopes_.enter(scopes_.current());
  for (size_t i = 0; i < values.size(); ++i) scopes_.set(statement.parameters[i].symbol, std::move(values[i]));
  const Status status = run(statement.body);
  scopes_.leave(before);
  return status;
}

Status Evaluator::write(Position where, const Value& value) {
  HEADWATER_RETURN_IF_ERROR(append_text(at(where), value, *out_));
  if (out_->size() <= output_bytes_max_) return {};
  return error_at(where, ErrorCode::kExhausted, "the template writes more than {} bytes; {}", output_bytes_max_,
                  Budget::kRemedy);
}

Result<Text> Evaluator::capture(const Body& body) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  const Status status = run(body);
  out_ = outer;
  if (!status) return status;
  return text;
}

Status Evaluator::assign(Position where, const Target& target, Value value) {
  if (!target.attribute.empty()) return set_attribute(where, target, std::move(value));
  if (target.parts.empty()) {
    scopes_.set(target.symbol, std::move(value));
    return {};
  }
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> values, items_of(at(where), value));
  if (values.size() != target.parts.size()) {
    return at(where).wrong("{} values are unpacked into {} names", values.size(), target.parts.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    HEADWATER_RETURN_IF_ERROR(assign(where, target.parts[i], std::move(values[i])));
  }
  return {};
}

Status Evaluator::set_attribute(Position where, const Target& target, Value value) {
  uint64_t scanned_bytes = 0;
  const Value* object = scopes_.find(target.symbol, scanned_bytes);
  const Call call = at(where);
  if (object == nullptr || object->space() == nullptr) {
    return call.wrong("\"{}\" is {}; only a namespace takes attributes", template_.symbols.name(target.symbol),
                      object == nullptr ? "an undefined value" : object->type_name());
  }
  HEADWATER_RETURN_IF_ERROR(check_storable(call, value));
  HEADWATER_RETURN_IF_ERROR(call.step(scanned_bytes + object->space()->attributes.size() * sizeof(Value)));
  object->space()->set(target.attribute, std::move(value));
  return {};
}

Status Evaluator::run_set(const Statement& statement) {
  HEADWATER_ASSIGN_OR_RETURN(Value value, evaluate(*statement.expression));
  return assign(statement.where, statement.target, std::move(value));
}

Status Evaluator::run_block(const Statement& statement) {
  Frame* before = scopes_.enter(scopes_.current());
  Result<Text> text = capture(statement.body);
  scopes_.leave(before);
  if (!text) return text.status();
  if (flow_ != Flow::kNext) return {};  // a break or continue leaves the block and its text behind
  Value value = Value::of_text(std::move(*text));
  if (statement.expression) {
    captured_ = std::move(value);
    HEADWATER_ASSIGN_OR_RETURN(value, evaluate(*statement.expression));
  }
  if (statement.kind == StatementKind::kFilter) return write(statement.where, value);
  return assign(statement.where, statement.target, std::move(value));
}

Result<std::vector<Value>> Evaluator::loop_items(const Statement& statement) {
  HEADWATER_ASSIGN_OR_RETURN(const Value sequence, evaluate(*statement.expression));
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> items, items_of(at(statement.where), sequence));
  const Expression* filter = statement.branches[0].condition.get();
  if (filter == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    Frame* before = scopes_.enter(scopes_.current());
    scopes_.set(kLoopSymbol, Value());  // the loop's own begins only behind the filter
    Status status = assign(statement.where, statement.target, item);
    Result<Value> condition = status ? evaluate(*filter) : Result<Value>(status);
    scopes_.leave(before);
    if (!condition) return condition.status();
    if (condition->truth()) kept.push_back(std::move(item));
  }
  return kept;
}

// One run of the body.
Status Evaluator::run_loop(const Statement& statement, Loop& loop, const Value& value, bool& is_completed) {
  scopes_.set(kLoopSymbol, value);
  HEADWATER_RETURN_IF_ERROR(assign(statement.where, statement.target, loop.items[loop.index]));
  HEADWATER_RETURN_IF_ERROR(run(statement.branches[0].body));
  is_completed = is_completed || flow_ == Flow::kNext;
  return {};
}

Status Evaluator::run_for(const Statement& statement) {
  const auto loop = std::make_shared<Loop>();
  HEADWATER_ASSIGN_OR_RETURN(loop->items, loop_items(statement));
  HEADWATER_RETURN_IF_ERROR(budget_.build(statement.where, sizeof(Loop) + loop->items.size() * sizeof(Value)));
  const Value value = Value::Held(std::shared_ptr<const Loop>(loop));
  bool is_completed = false;  // as jinja2: a run that ends early does not keep the else from running
  for (loop->index = 0; loop->index < loop->items.size() && flow_ != Flow::kBreak; ++loop->index) {
    flow_ = Flow::kNext;
    Frame* before = scopes_.enter(scopes_.current());
    const Status status = run_loop(statement, *loop, value, is_completed);
    scopes_.leave(before);
    HEADWATER_RETURN_IF_ERROR(status);
  }
  flow_ = Flow::kNext;
  return is_completed ? Status() : run_inside(statement.otherwise);
}

}  // namespace headwater::text::jinja
