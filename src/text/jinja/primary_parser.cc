// Names, literals and calls: the leaves of the expression grammar.
#include <algorithm>
#include <charconv>

#include "text/jinja/expression_parser.h"

namespace headwater::text::jinja {
namespace {

ExpressionPtr literal(Position where, Value value) {
  return std::make_unique<Expression>(
      Expression{.kind = ExpressionKind::kLiteral, .where = where, .literal = std::move(value)});
}

// Names that stand for values in every template.
std::optional<Value> constant(std::string_view name) {
  if (name == "true" || name == "True") return Value::of_bool(true);
  if (name == "false" || name == "False") return Value::of_bool(false);
  if (name == "none" || name == "None") return Value::none();
  return std::nullopt;
}

}  // namespace

Result<ExpressionPtr> ExpressionParser::parse_name() {
  const Token& token = tokens_.take();
  if (const std::optional<Value> value = constant(token.text)) return literal(token.where, *value);
  static constexpr std::string_view kNotKnown[] = {"caller", "varargs", "kwargs", "self", "cycler", "joiner", "lipsum"};
  const bool is_of_jinja2 = std::find(std::begin(kNotKnown), std::end(kNotKnown), token.text) != std::end(kNotKnown);
  if (is_of_jinja2 && !declared_.contains(symbols_.of(token.text))) {
    return error_at(token.where, ErrorCode::kUnsupported, "\"{}\" is not known here", token.text);
  }
  return std::make_unique<Expression>(Expression{.kind = ExpressionKind::kName,
                                                 .where = token.where,
                                                 .symbol = symbols_.of(token.text),
                                                 .builtin = find_function(token.text)});
}

Result<ExpressionPtr> ExpressionParser::parse_string() {
  const Position where = tokens_.where();
  std::string text;
  while (tokens_.is(TokenKind::kString)) text += tokens_.take().text;  // neighbours are one string
  return literal(where, Value::of_text(Text(text, true)));
}

Result<ExpressionPtr> ExpressionParser::parse_number() {
  const Token& token = tokens_.take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::kInteger) {
    int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec == std::errc())
      return literal(token.where, Value::of_int(value));
  } else {
    double value = 0;
    if (std::from_chars(token.text.data(), end, value).ec == std::errc())
      return literal(token.where, Value::of_float(value));
  }
  return error_at(token.where, ErrorCode::kUnsupported, "the number {} does not fit 64 bits", token.text);
}

Result<ExpressionPtr> ExpressionParser::parse_list() {
  auto node = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kList, .where = tokens_.take().where});
  while (!tokens_.take_operator("]")) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr item, parse());
    node->children.push_back(std::move(item));
    if (!tokens_.is_operator("]")) HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(","));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_parentheses() {
  auto tuple = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kTuple, .where = tokens_.take().where});
  while (!tokens_.take_operator(")")) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr item, parse());
    if (tuple->children.empty() && tokens_.take_operator(")")) return item;
    tuple->children.push_back(std::move(item));
    if (!tokens_.is_operator(")")) HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(","));
  }
  return finish(std::move(tuple));
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  auto node = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kDict, .where = tokens_.take().where});
  while (!tokens_.take_operator("}")) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr key, parse());
    HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(":"));
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr value, parse());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
    if (!tokens_.is_operator("}")) HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(","));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_call(ExpressionPtr callee) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Argument> arguments, parse_arguments());
  const Position where = callee->where;
  const bool is_known = callee->kind != ExpressionKind::kName || declared_.contains(callee->symbol);
  if (!is_known && callee->builtin != nullptr) return bind(where, *callee->builtin, nullptr, std::move(arguments));
  if (!is_known) unknown_.emplace_back(callee->symbol, where);
  auto node = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kCall, .where = where});
  node->children.push_back(std::move(callee));
  for (Argument& argument : arguments) {
    node->names.push_back(std::move(argument.name));
    node->children.push_back(std::move(argument.value));
  }
  return finish(std::move(node));
}

Result<std::vector<ExpressionParser::Argument>> ExpressionParser::parse_arguments() {
  HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator("("));
  std::vector<Argument> arguments;
  while (!tokens_.take_operator(")")) {
    Argument argument{.name = {}, .where = tokens_.where(), .value = {}};
    if (tokens_.is_operator("*") || tokens_.is_operator("**")) {
      return error_at(argument.where, ErrorCode::kUnsupported, "arguments cannot be unpacked here");
    }
    if (tokens_.is(TokenKind::kName) && TokenStream::is_operator(tokens_.next(), "=")) {
      argument.name = tokens_.take().text;
      tokens_.take();
    } else if (!arguments.empty() && !arguments.back().name.empty()) {
      return error_at(argument.where, ErrorCode::kInvalidArgument, "a positional argument follows a named one");
    }
    HEADWATER_ASSIGN_OR_RETURN(argument.value, parse());
    arguments.push_back(std::move(argument));
    if (!tokens_.is_operator(")")) HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(","));
  }
  return arguments;
}

// Where a call of builtin holds an argument; next: the parameter of the next one without a name.
Result<ExpressionPtr*> ExpressionParser::place_of(const Builtin& builtin, const Argument& argument, size_t& next,
                                                  Expression& call) {
  const auto& parameters = builtin.parameters;
  const std::string_view rest = argument.name.empty() ? "*" : "**";
  size_t slot = next;
  if (!argument.name.empty()) {
    slot = static_cast<size_t>(std::find(parameters.begin(), parameters.end(), argument.name) - parameters.begin());
    if (slot == parameters.size()) {
      slot = static_cast<size_t>(std::find(parameters.begin(), parameters.end(), rest) - parameters.begin());
    }
  }
  const bool is_rest = slot < parameters.size() && parameters[slot] == rest;
  const bool fits =
      slot < parameters.size() && (is_rest || (!call.children[slot] && !parameters[slot].starts_with('*')));
  if (!fits) {
    return error_at(argument.where, ErrorCode::kUnsupported, "\"{}\" has no parameter for this argument", builtin.name);
  }
  if (!is_rest) {
    next += argument.name.empty();
    return &call.children[slot];
  }
  if (!call.children[slot]) {
    const auto kind = argument.name.empty() ? ExpressionKind::kTuple : ExpressionKind::kDict;
    call.children[slot] = std::make_unique<Expression>(Expression{.kind = kind, .where = argument.where});
  }
  auto& more = call.children[slot]->children;
  if (!argument.name.empty()) more.push_back(literal(argument.where, Value::of_text(Text(argument.name, true))));
  return &more.emplace_back();
}

Result<ExpressionPtr> ExpressionParser::bind(Position where, const Builtin& builtin, ExpressionPtr subject,
                                             std::vector<Argument> arguments) {
  auto node =
      std::make_unique<Expression>(Expression{.kind = ExpressionKind::kBuiltin, .where = where, .builtin = &builtin});
  node->children.resize(builtin.parameters.size());
  size_t next = 0;
  if (subject) node->children[next++] = std::move(subject);
  for (Argument& argument : arguments) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr * place, place_of(builtin, argument, next, *node));
    *place = std::move(argument.value);
  }
  for (ExpressionPtr& child : node->children) {
    if (!child) continue;
    HEADWATER_ASSIGN_OR_RETURN(child, finish(std::move(child)));
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (node->children[i]) continue;
    return error_at(where, ErrorCode::kInvalidArgument, "\"{}\" needs its argument \"{}\"", builtin.name,
                    builtin.parameters[i]);
  }
  return finish(std::move(node));
}

}  // namespace headwater::text::jinja
