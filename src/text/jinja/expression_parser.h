// The expressions of a template: condition < or < and < not < comparison < + - < ~ < * / // % < unary < postfix,
// filter, test. Precedence and associativity are jinja2's.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace headwater::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Result<ExpressionPtr> parse();                    // a whole expression
  Result<ExpressionPtr> parse_without_condition();  // where a following `if` belongs to someone else

  // kUnsupported for the first call of a function that is not known, unless the template asks whether it is defined.
  Status check_calls() const;

 private:
  using Rule = Result<ExpressionPtr> (ExpressionParser::*)();
  using BinaryOperator = std::pair<std::string_view, Operator>;
  struct Argument {
    std::string name;  // empty: positional
    Position where;
    ExpressionPtr value;
  };

  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_comparison();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concatenation();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_operand();
  Result<ExpressionPtr> parse_unary();  // without the filters that follow
  Result<ExpressionPtr> parse_postfix(ExpressionPtr node);
  Result<ExpressionPtr> parse_filters(ExpressionPtr node);
  Result<ExpressionPtr> parse_filter(ExpressionPtr node);
  Result<ExpressionPtr> parse_test(ExpressionPtr node);
  Result<ExpressionPtr> parse_attribute(ExpressionPtr node);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr node);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_name();
  Result<ExpressionPtr> parse_string();
  Result<ExpressionPtr> parse_number();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_call(const Token& name);
  Result<ExpressionPtr> parse_binary(Rule operand, std::span<const BinaryOperator> operators);

  Result<std::vector<Argument>> parse_arguments();
  // A call of builtin on subject (where it has one), with the arguments in the order of its parameters.
  Result<ExpressionPtr> bind(Position where, const Builtin& builtin, ExpressionPtr subject,
                             std::vector<Argument> arguments);
  template <typename... Children>
  Result<ExpressionPtr> make(ExpressionKind kind, Position where, Children... children);
  Result<ExpressionPtr> finish(ExpressionPtr node);  // sets and checks the height
  std::optional<Operator> take_comparison();

  TokenStream& tokens_;
  std::set<std::string, std::less<>> tested_;              // names in `name is defined`
  std::vector<std::pair<std::string, Position>> unknown_;  // calls of functions that are not known
};

}  // namespace headwater::text::jinja
