// A parsed template. Trees are at most as high as the parser's depth limit, so they are evaluated and freed by
// recursion.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/position.h"
#include "text/jinja/value.h"

namespace headwater::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

enum class ExpressionKind : uint8_t {
  kLiteral,
  kName,         // name
  kList,         // children: the items
  kDict,         // children: key, value, key, value, ...
  kAttribute,    // children[0].name
  kSubscript,    // children[0][children[1]]
  kSlice,        // children[0][children[1]:children[2]:children[3]]; the last three may be null
  kNot,          // not children[0]
  kMinus,        // -children[0]
  kPlus,         // +children[0]
  kAnd,          // children[0] and children[1]
  kOr,           // children[0] or children[1]
  kCompare,      // children[0] operators[0] children[1] operators[1] children[2] ...
  kArithmetic,   // children[0] operators[0] children[1]
  kConcat,       // children joined by ~
  kConditional,  // children[0] if children[1] else children[2]; the last may be null
  kCall,         // builtin(children...); missing optional arguments are null
  kNamespace,    // namespace(names[i]=children[i]...)
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expression {
  ExpressionKind kind;
  Position where;
  Value literal = {};
  std::string name = {};
  std::vector<std::string> names = {};
  std::vector<ExpressionPtr> children = {};
  std::vector<Operator> operators = {};
  const Builtin* builtin = nullptr;
  uint32_t height = 1;
};

enum class StatementKind : uint8_t {
  kData,    // literal text
  kOutput,  // {{ expression }}
  kSet,     // {% set name = expression %}, or name.attribute where attribute is not empty
  kIf,      // the first branch whose condition holds, or otherwise
  kFor,     // {% for name in expression if branches[0].condition %} branches[0].body {% else %} otherwise
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind;
  Position where;
  Value literal = {};
  std::string name = {};
  std::string attribute = {};
  ExpressionPtr expression = {};
  std::vector<Branch> branches = {};
  Body otherwise = {};
};

}  // namespace headwater::text::jinja
