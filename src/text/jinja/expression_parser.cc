#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

namespace headwater::text::jinja {

template <typename... Children>
Result<ExpressionPtr> ExpressionParser::make(ExpressionKind kind, Position where, Children... children) {
  auto node = std::make_unique<Expression>(Expression{.kind = kind, .where = where});
  (node->children.push_back(std::move(children)), ...);
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::finish(ExpressionPtr node) {
  for (const ExpressionPtr& child : node->children) {
    if (child) node->height = std::max(node->height, child->height + 1);
  }
  HEADWATER_RETURN_IF_ERROR(tokens_.check_depth(node->height, node->where));
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse() {
  const TokenStream::Level level(tokens_);
  HEADWATER_RETURN_IF_ERROR(level.status());
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr node, parse_without_condition());
  while (tokens_.is_name("if")) {
    const Position where = tokens_.take().where;
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr condition, parse_without_condition());
    ExpressionPtr otherwise;
    if (tokens_.take_name("else")) {
      HEADWATER_ASSIGN_OR_RETURN(otherwise, parse());
    }
    HEADWATER_ASSIGN_OR_RETURN(
        node, make(ExpressionKind::kConditional, where, std::move(node), std::move(condition), std::move(otherwise)));
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_tuple(Rule item) {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr first, (this->*item)());
  if (!tokens_.is_operator(",")) return first;
  auto tuple = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kTuple, .where = first->where});
  tuple->children.push_back(std::move(first));
  while (tokens_.take_operator(",") && !tokens_.is(TokenKind::kVariableEnd) && !tokens_.is(TokenKind::kBlockEnd)) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr next, (this->*item)());
    tuple->children.push_back(std::move(next));
  }
  return finish(std::move(tuple));
}

Result<ExpressionPtr> ExpressionParser::parse_several() {
  return parse_tuple(&ExpressionParser::parse);
}

Result<ExpressionPtr> ExpressionParser::parse_several_without_condition() {
  return parse_tuple(&ExpressionParser::parse_without_condition);
}

Result<ExpressionPtr> ExpressionParser::parse_without_condition() {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr left, parse_and());
  while (tokens_.is_name("or")) {
    const Position where = tokens_.take().where;
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr right, parse_and());
    HEADWATER_ASSIGN_OR_RETURN(left, make(ExpressionKind::kOr, where, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr left, parse_not());
  while (tokens_.is_name("and")) {
    const Position where = tokens_.take().where;
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr right, parse_not());
    HEADWATER_ASSIGN_OR_RETURN(left, make(ExpressionKind::kAnd, where, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  if (!tokens_.is_name("not")) return parse_comparison();
  const TokenStream::Level level(tokens_);
  HEADWATER_RETURN_IF_ERROR(level.status());
  const Position where = tokens_.take().where;
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_not());
  return make(ExpressionKind::kNot, where, std::move(operand));
}

std::optional<Operator> ExpressionParser::take_comparison() {
  static constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  for (const auto& [spelling, comparison] : kComparisons) {
    if (tokens_.take_operator(spelling)) return comparison;
  }
  if (tokens_.take_name("in")) return Operator::kIn;
  if (tokens_.is_name("not") && TokenStream::is_name(tokens_.next(), "in")) {
    tokens_.take();
    tokens_.take();
    return Operator::kNotIn;
  }
  return std::nullopt;
}

Result<ExpressionPtr> ExpressionParser::parse_comparison() {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr first, parse_sum());
  Position where = tokens_.where();
  std::optional<Operator> comparison = take_comparison();
  if (!comparison) return first;
  auto node = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kCompare, .where = where});
  node->children.push_back(std::move(first));
  for (; comparison; comparison = take_comparison()) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_sum());
    node->operators.push_back(*comparison);
    node->children.push_back(std::move(operand));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_binary(Rule operand, std::span<const BinaryOperator> operators) {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  while (true) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [&](const BinaryOperator& known) { return tokens_.is_operator(known.first); });
    if (found == operators.end()) return left;
    const Position where = tokens_.take().where;
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr right, (this->*operand)());
    HEADWATER_ASSIGN_OR_RETURN(left, make(ExpressionKind::kArithmetic, where, std::move(left), std::move(right)));
    left->operators = {found->second};
  }
}

Result<ExpressionPtr> ExpressionParser::parse_sum() {
  static constexpr BinaryOperator kOperators[] = {{"+", Operator::kAdd}, {"-", Operator::kSubtract}};
  return parse_binary(&ExpressionParser::parse_concatenation, kOperators);
}

Result<ExpressionPtr> ExpressionParser::parse_concatenation() {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr first, parse_product());
  if (!tokens_.is_operator("~")) return first;
  auto node = std::make_unique<Expression>(Expression{.kind = ExpressionKind::kConcat, .where = tokens_.where()});
  node->children.push_back(std::move(first));
  while (tokens_.take_operator("~")) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_product());
    node->children.push_back(std::move(operand));
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_product() {
  static constexpr BinaryOperator kOperators[] = {
      {"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}};
  return parse_binary(&ExpressionParser::parse_power, kOperators);
}

Result<ExpressionPtr> ExpressionParser::parse_power() {  // from the left, unlike Python's
  static constexpr BinaryOperator kOperators[] = {{"**", Operator::kPower}};
  return parse_binary(&ExpressionParser::parse_operand, kOperators);
}

Result<ExpressionPtr> ExpressionParser::parse_operand() {
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr node, parse_unary());
  return parse_filters(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::parse_unary() {
  if (!tokens_.is_operator("-") && !tokens_.is_operator("+")) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr node, parse_primary());
    return parse_postfix(std::move(node));
  }
  const TokenStream::Level level(tokens_);
  HEADWATER_RETURN_IF_ERROR(level.status());
  const ExpressionKind kind = tokens_.is_operator("-") ? ExpressionKind::kMinus : ExpressionKind::kPlus;
  const Position where = tokens_.take().where;
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_unary());
  return make(kind, where, std::move(operand));
}

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (tokens_.is_operator(".")) {
      HEADWATER_ASSIGN_OR_RETURN(node, parse_attribute(std::move(node)));
    } else if (tokens_.is_operator("[")) {
      HEADWATER_ASSIGN_OR_RETURN(node, parse_subscript(std::move(node)));
    } else if (tokens_.is_operator("(")) {
      HEADWATER_ASSIGN_OR_RETURN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_filters(ExpressionPtr node) {
  while (true) {
    if (tokens_.take_operator("|")) {
      HEADWATER_ASSIGN_OR_RETURN(node, parse_filter(std::move(node)));
    } else if (tokens_.is_name("is")) {
      HEADWATER_ASSIGN_OR_RETURN(node, parse_test(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_block_filters(bool begins_with_name) {
  if (!begins_with_name && !tokens_.is_operator("|")) return ExpressionPtr();
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr node, make(ExpressionKind::kCaptured, tokens_.where()));
  while (begins_with_name || tokens_.take_operator("|")) {
    begins_with_name = false;
    HEADWATER_ASSIGN_OR_RETURN(node, parse_filter(std::move(node)));
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_filter(ExpressionPtr node) {
  const Position where = tokens_.where();
  HEADWATER_ASSIGN_OR_RETURN(const std::string name, tokens_.expect_name());
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) {
    return error_at(where, ErrorCode::kUnsupported, "the filter \"{}\" is not known here", name);
  }
  std::vector<Argument> arguments;
  if (tokens_.is_operator("(")) {
    HEADWATER_ASSIGN_OR_RETURN(arguments, parse_arguments());
  }
  return bind(where, *filter, std::move(node), std::move(arguments));
}

Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr node) {
  const Position where = tokens_.take().where;
  const bool is_negated = tokens_.take_name("not");
  const Position name_where = tokens_.where();
  HEADWATER_ASSIGN_OR_RETURN(const std::string name, tokens_.expect_name());
  const Builtin* test = find_test(name);
  if (test == nullptr) {
    return error_at(name_where, ErrorCode::kUnsupported, "the test \"{}\" is not known here", name);
  }
  if (name == "defined" && node->kind == ExpressionKind::kName) tested_.insert(node->symbol);
  std::vector<Argument> arguments;
  if (tokens_.is_operator("(")) {
    HEADWATER_ASSIGN_OR_RETURN(arguments, parse_arguments());
  } else if (test->required > 1) {
    Argument& argument = arguments.emplace_back(Argument{.name = {}, .where = tokens_.where(), .value = {}});
    HEADWATER_ASSIGN_OR_RETURN(argument.value, parse_primary());
    HEADWATER_ASSIGN_OR_RETURN(argument.value, parse_postfix(std::move(argument.value)));
  }
  HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr result, bind(where, *test, std::move(node), std::move(arguments)));
  if (!is_negated) return result;
  return make(ExpressionKind::kNot, where, std::move(result));
}

Result<ExpressionPtr> ExpressionParser::parse_attribute(ExpressionPtr node) {
  const Position where = tokens_.take().where;
  if (tokens_.is(TokenKind::kInteger)) {
    HEADWATER_ASSIGN_OR_RETURN(ExpressionPtr index, parse_number());
    return make(ExpressionKind::kSubscript, where, std::move(node), std::move(index));
  }
  HEADWATER_ASSIGN_OR_RETURN(std::string name, tokens_.expect_name());
  if (tokens_.is_operator("(")) {
    const Builtin* method = find_method(name);
    if (method == nullptr) {
      return error_at(where, ErrorCode::kUnsupported, "the method \"{}\" is not known here", name);
    }
    HEADWATER_ASSIGN_OR_RETURN(std::vector<Argument> arguments, parse_arguments());
    return bind(where, *method, std::move(node), std::move(arguments));
  }
  static constexpr std::string_view kLoop[] = {"index",    "index0",    "first",    "last",    "length",
                                               "revindex", "revindex0", "previtem", "nextitem"};
  if (node->kind == ExpressionKind::kName && node->symbol == kLoopSymbol &&
      std::find(std::begin(kLoop), std::end(kLoop), name) == std::end(kLoop)) {
    return error_at(where, ErrorCode::kUnsupported, "\"loop.{}\" is not known here", name);
  }
  HEADWATER_ASSIGN_OR_RETURN(node, make(ExpressionKind::kAttribute, where, std::move(node)));
  node->name = std::move(name);
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr node) {
  const Position where = tokens_.take().where;
  ExpressionPtr bounds[3];
  size_t colons = 0;
  for (size_t i = 0; i < 3 && colons == i; ++i) {
    if (!tokens_.is_operator(":") && !tokens_.is_operator("]")) {
      HEADWATER_ASSIGN_OR_RETURN(bounds[i], parse());
    }
    if (i < 2) colons += tokens_.take_operator(":");
  }
  HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator("]"));
  if (colons == 0 && !bounds[0]) {
    return error_at(where, ErrorCode::kInvalidArgument, "the brackets hold no subscript");
  }
  if (colons == 0) return make(ExpressionKind::kSubscript, where, std::move(node), std::move(bounds[0]));
  return make(ExpressionKind::kSlice, where, std::move(node), std::move(bounds[0]), std::move(bounds[1]),
              std::move(bounds[2]));
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  if (tokens_.is(TokenKind::kName)) return parse_name();
  if (tokens_.is(TokenKind::kString)) return parse_string();
  if (tokens_.is(TokenKind::kInteger) || tokens_.is(TokenKind::kFloat)) return parse_number();
  if (tokens_.is_operator("[")) return parse_list();
  if (tokens_.is_operator("{")) return parse_dict();
  if (tokens_.is_operator("(")) return parse_parentheses();
  return tokens_.unexpected("an expression");
}

Status ExpressionParser::check_calls() const {
  for (const auto& [symbol, where] : unknown_) {
    if (tested_.contains(symbol) || declared_.contains(symbol)) continue;
    return error_at(where, ErrorCode::kUnsupported, "the function \"{}\" is not known here", symbols_.name(symbol));
  }
  return {};
}

}  // namespace headwater::text::jinja
