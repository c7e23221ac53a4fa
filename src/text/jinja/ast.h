// A parsed template. Trees are at most as high as the parser's depth limit, so they are freed by recursion.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/position.h"
#include "text/jinja/value.h"

namespace headwater::text::jinja {

// A name of a variable, numbered in the order in which the template mentions them.
using Symbol = uint32_t;
inline constexpr Symbol kLoopSymbol = 0;

class Symbols {
 public:
  Symbols() { of("loop"); }
  Symbol of(std::string_view name) {
    const auto [found, is_new] = by_name_.emplace(name, static_cast<Symbol>(names_.size()));
    if (is_new) names_.emplace_back(name);
    return found->second;
  }
  std::optional<Symbol> find(std::string_view name) const {
    const auto found = by_name_.find(std::string(name));
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::string& name(Symbol symbol) const { return names_[symbol]; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, Symbol> by_name_;
};

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

enum class ExpressionKind : uint8_t {
  kLiteral,
  kName,         // symbol
  kList,         // children: the items
  kTuple,        // children: the items
  kDict,         // children: key, value, key, value, ...
  kAttribute,    // children[0].name
  kSubscript,    // children[0][children[1]]
  kCaptured,     // the text of the block that a filter stands in
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
  kBuiltin,      // builtin(children...); missing optional arguments are null
  kCall,         // children[0](children[1], ...); names[i] belongs to children[i + 1], "" where it is positional
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
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
  Symbol symbol = 0;
  std::string name = {};
  std::vector<std::string> names = {};
  std::vector<ExpressionPtr> children = {};
  std::vector<Operator> operators = {};
  const Builtin* builtin = nullptr;
  uint32_t height = 1;
};

enum class StatementKind : uint8_t {
  kData,      // literal text
  kOutput,    // {{ expression }}
  kSet,       // {% set target = expression %}
  kSetBlock,  // {% set target %} body {% endset %}; expression filters the text, if there is one
  kFilter,    // {% filter expression %} body {% endfilter %}
  kIf,        // the first branch whose condition holds, or otherwise
  kFor,       // {% for target in expression if branches[0].condition %} body {% else %} otherwise
  kMacro,     // {% macro target(parameters) %} body {% endmacro %}
  kScope,     // {% with parameters %} body {% endwith %}, {% generation %} body {% endgeneration %}
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

// What a value is given to: a name, an attribute of the namespace of that name, or several that take it apart.
struct Target {
  Symbol symbol = 0;
  std::string attribute = {};
  std::vector<Target> parts = {};
};

struct Parameter {
  Symbol symbol;
  ExpressionPtr preset;  // null: an argument that is not given is undefined
};

struct Statement {
  StatementKind kind;
  Position where;
  Value literal = {};
  Target target = {};
  ExpressionPtr expression = {};
  std::vector<Parameter> parameters = {};
  std::vector<Branch> branches = {};
  Body body = {};
  Body otherwise = {};
};

struct Template {
  Body body;
  Symbols symbols;
};

}  // namespace headwater::text::jinja
