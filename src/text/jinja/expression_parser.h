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
  ExpressionParser(TokenStream& tokens, Symbols& symbols) : tokens_(tokens), symbols_(symbols) {}

  Result<ExpressionPtr> parse();          // a whole expression
  Result<ExpressionPtr> parse_several();  // the same, or several with commas between them, which are a tuple
  Result<ExpressionPtr> parse_several_without_condition();  // where a following `if` belongs to someone else
  // The filters of a block's text: "trim" or "|trim", and more with "|" before each; without any, null.
  Result<ExpressionPtr> parse_block_filters(bool begins_with_name);

  // A name that the template gives a value to, which may be a macro.
  void declare(Symbol symbol) { declared_.insert(symbol); }
  // kUnsupported for the first call of a function that is not known, unless the template defines it or asks whether it
  // is defined.
  Status check_calls() const;

 private:
  using Rule = Result<ExpressionPtr> (ExpressionParser::*)();
  using BinaryOperator = std::pair<std::string_view, Operator>;
  struct Argument {
    std::string name;  // empty: positional
    Position where;
    ExpressionPtr value;
  };

  Result<ExpressionPtr> parse_tuple(Rule item);
  Result<ExpressionPtr> parse_without_condition();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_comparison();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concatenation();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_operand();
  Result<ExpressionPtr> parse_unary();  // without the filters that follow
  Result<ExpressionPtr> parse_postfix(ExpressionPtr node);
  Result<ExpressionPtr> parse_filters(ExpressionPtr node);
  Result<ExpressionPtr> parse_filter(ExpressionPtr node);  // behind its "|"
  Result<ExpressionPtr> parse_test(ExpressionPtr node);
  Result<ExpressionPtr> parse_attribute(ExpressionPtr node);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr node);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_name();
  Result<ExpressionPtr> parse_string();
  Result<ExpressionPtr> parse_number();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_parentheses();  // a tuple, or an expression of its own
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_call(ExpressionPtr callee);
  Result<ExpressionPtr> parse_binary(Rule operand, std::span<const BinaryOperator> operators);

  Result<std::vector<Argument>> parse_arguments();
  // A call of builtin on subject (where it has one), with the arguments in the order of its parameters.
  Result<ExpressionPtr> bind(Position where, const Builtin& builtin, ExpressionPtr subject,
                             std::vector<Argument> arguments);
  Result<ExpressionPtr*> place_of(const Builtin& builtin, const Argument& argument, size_t& next, Expression& call);
  template <typename... Children>
  Result<ExpressionPtr> make(ExpressionKind kind, Position where, Children... children);
  Result<ExpressionPtr> finish(ExpressionPtr node);  // sets and checks the height
  std::optional<Operator> take_comparison();

  TokenStream& tokens_;
  Symbols& symbols_;
  std::set<Symbol> declared_;
  std::set<Symbol> tested_;                           // in `name is defined`
  std::vector<std::pair<Symbol, Position>> unknown_;  // calls of functions that are not known
};

}  // namespace headwater::text::jinja
