#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/expression_parser.h"
#include "text/jinja/token_stream.h"

namespace headwater::text::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_among(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, uint32_t depth_max)
      : tokens_(std::move(tokens), depth_max), expressions_(tokens_, symbols_) {}

  Result<Template> run() {
    HEADWATER_ASSIGN_OR_RETURN(Body body, parse_body({}));
    HEADWATER_RETURN_IF_ERROR(expressions_.check_calls());
    return Template{std::move(body), std::move(symbols_)};
  }

 private:
  // Statements up to a block that begins with one of ends, which is left current behind its "{%"; with no ends, up to
  // the end of the template.
  Result<Body> parse_body(Names ends) {
    const TokenStream::Level level(tokens_);
    HEADWATER_RETURN_IF_ERROR(level.status());
    Body body;
    while (!tokens_.is(TokenKind::kEnd)) {
      const Token& token = tokens_.take();
      if (token.kind == TokenKind::kData) {
        body.push_back(
            {.kind = StatementKind::kData, .where = token.where, .literal = Value::of_text(Text(token.text, true))});
      } else if (token.kind == TokenKind::kVariableBegin) {
        Statement output{.kind = StatementKind::kOutput, .where = token.where};
        HEADWATER_ASSIGN_OR_RETURN(output.expression, expressions_.parse_several());
        HEADWATER_RETURN_IF_ERROR(tokens_.expect(TokenKind::kVariableEnd, "\"}}\""));
        body.push_back(std::move(output));
      } else {
        if (tokens_.is(TokenKind::kName) && is_among(ends, tokens_.current().text)) return body;
        HEADWATER_ASSIGN_OR_RETURN(Statement statement, parse_statement());
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() > 0) return tokens_.unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return body;
  }

  // A body that only `end` ends, and that end.
  Result<Body> parse_block(std::string_view end) {
    HEADWATER_ASSIGN_OR_RETURN(Body body, parse_body({end}));
    tokens_.take();
    HEADWATER_RETURN_IF_ERROR(end_block());
    return body;
  }

  Result<Statement> parse_statement() {
    const Position where = tokens_.where();
    HEADWATER_ASSIGN_OR_RETURN(const std::string name, tokens_.expect_name());
    if (name == "if") return parse_if(where);
    if (name == "for") return parse_for(where);
    if (name == "set") return parse_set(where);
    if (name == "macro") return parse_macro(where);
    if (name == "filter") return parse_filter(where);
    if (name == "with") return parse_with(where);
    if (name == "generation") return parse_generation(where);
    if (name == "break" || name == "continue") return parse_jump(where, name == "break");
    if (is_among({"elif", "else", "endif", "endfor", "endset", "endmacro", "endfilter", "endwith", "endgeneration"},
                 name)) {
      return error_at(where, ErrorCode::kInvalidArgument, "\"{}\" has no beginning", name);
    }
    return error_at(where, ErrorCode::kUnsupported, "the statement \"{}\" is not known here", name);
  }

  Status end_block() { return tokens_.expect(TokenKind::kBlockEnd, "\"%}\""); }

  Result<Statement> parse_if(Position where) {
    Statement statement{.kind = StatementKind::kIf, .where = where};
    do {
      Branch branch;
      HEADWATER_ASSIGN_OR_RETURN(branch.condition, expressions_.parse_several());
      HEADWATER_RETURN_IF_ERROR(end_block());
      HEADWATER_ASSIGN_OR_RETURN(branch.body, parse_body({"elif", "else", "endif"}));
      statement.branches.push_back(std::move(branch));
    } while (tokens_.take_name("elif"));
    HEADWATER_RETURN_IF_ERROR(parse_else(statement, "endif"));
    return statement;
  }

  // The rest of an if or for from its "else" or its end on.
  Status parse_else(Statement& statement, std::string_view end) {
    if (tokens_.take_name("else")) {
      HEADWATER_RETURN_IF_ERROR(end_block());
      HEADWATER_ASSIGN_OR_RETURN(statement.otherwise, parse_body({end}));
    }
    tokens_.take();
    return end_block();
  }

  Result<Symbol> parse_name() {
    const Position where = tokens_.where();
    HEADWATER_ASSIGN_OR_RETURN(const std::string name, tokens_.expect_name());
    if (is_among({"true", "false", "none", "True", "False", "None", "loop"}, name)) {
      return error_at(where, ErrorCode::kInvalidArgument, "\"{}\" cannot be assigned", name);
    }
    const Symbol symbol = symbols_.of(name);
    expressions_.declare(symbol);
    return symbol;
  }

  // a, or several: a, (b, c). Only `set` gives values to attributes.
  Result<Target> parse_target(bool takes_attributes) {
    HEADWATER_ASSIGN_OR_RETURN(Target first, parse_target_part(takes_attributes));
    if (!tokens_.is_operator(",")) return first;
    Target several;
    several.parts.push_back(std::move(first));
    while (tokens_.take_operator(",") && !tokens_.is_operator(")")) {
      HEADWATER_ASSIGN_OR_RETURN(Target next, parse_target_part(takes_attributes));
      several.parts.push_back(std::move(next));
    }
    return several;
  }

  Result<Target> parse_target_part(bool takes_attributes) {
    if (tokens_.take_operator("(")) {
      const TokenStream::Level level(tokens_);
      HEADWATER_RETURN_IF_ERROR(level.status());
      HEADWATER_ASSIGN_OR_RETURN(Target inner, parse_target(takes_attributes));
      HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(")"));
      return inner;
    }
    Target target;
    HEADWATER_ASSIGN_OR_RETURN(target.symbol, parse_name());
    if (takes_attributes && tokens_.take_operator(".")) {
      HEADWATER_ASSIGN_OR_RETURN(target.attribute, tokens_.expect_name());
    }
    return target;
  }

  Result<Statement> parse_for(Position where) {
    Statement statement{.kind = StatementKind::kFor, .where = where};
    HEADWATER_ASSIGN_OR_RETURN(statement.target, parse_target(false));
    if (!tokens_.take_name("in")) return tokens_.unexpected("\"in\"");
    HEADWATER_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_several_without_condition());
    Branch branch;
    if (tokens_.take_name("if")) {
      HEADWATER_ASSIGN_OR_RETURN(branch.condition, expressions_.parse());
    }
    if (tokens_.is_name("recursive")) {
      return error_at(tokens_.where(), ErrorCode::kUnsupported, "recursive loops are not known here");
    }
    HEADWATER_RETURN_IF_ERROR(end_block());
    ++loops_;
    HEADWATER_ASSIGN_OR_RETURN(branch.body, parse_body({"else", "endfor"}));
    --loops_;
    statement.branches.push_back(std::move(branch));
    HEADWATER_RETURN_IF_ERROR(parse_else(statement, "endfor"));
    return statement;
  }

  Result<Statement> parse_jump(Position where, bool is_break) {
    if (loops_ == 0) {
      return error_at(where, ErrorCode::kInvalidArgument, "{} stands in no loop", is_break ? "break" : "continue");
    }
    HEADWATER_RETURN_IF_ERROR(end_block());
    return Statement{.kind = is_break ? StatementKind::kBreak : StatementKind::kContinue, .where = where};
  }

  Result<Statement> parse_set(Position where) {
    Statement statement{.kind = StatementKind::kSet, .where = where};
    HEADWATER_ASSIGN_OR_RETURN(statement.target, parse_target(true));
    if (tokens_.take_operator("=")) {
      HEADWATER_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_several());
      HEADWATER_RETURN_IF_ERROR(end_block());
      return statement;
    }
    statement.kind = StatementKind::kSetBlock;
    HEADWATER_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_block_filters(false));
    HEADWATER_RETURN_IF_ERROR(end_block());
    HEADWATER_ASSIGN_OR_RETURN(statement.body, parse_block("endset"));
    return statement;
  }

  Result<Statement> parse_filter(Position where) {
    Statement statement{.kind = StatementKind::kFilter, .where = where};
    HEADWATER_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_block_filters(true));
    HEADWATER_RETURN_IF_ERROR(end_block());
    HEADWATER_ASSIGN_OR_RETURN(statement.body, parse_block("endfilter"));
    return statement;
  }

  // {% with a = 1, b = 2 %}
  Result<Statement> parse_with(Position where) {
    Statement statement{.kind = StatementKind::kScope, .where = where};
    while (!tokens_.is(TokenKind::kBlockEnd)) {
      if (!statement.parameters.empty()) HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(","));
      Parameter parameter;
      HEADWATER_ASSIGN_OR_RETURN(parameter.symbol, parse_name());
      HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator("="));
      HEADWATER_ASSIGN_OR_RETURN(parameter.preset, expressions_.parse());
      statement.parameters.push_back(std::move(parameter));
    }
    HEADWATER_RETURN_IF_ERROR(end_block());
    HEADWATER_ASSIGN_OR_RETURN(statement.body, parse_block("endwith"));
    return statement;
  }

  Result<Statement> parse_generation(Position where) {
    Statement statement{.kind = StatementKind::kScope, .where = where};
    HEADWATER_RETURN_IF_ERROR(end_block());
    const size_t loops = std::exchange(loops_, 0);
    HEADWATER_ASSIGN_OR_RETURN(statement.body, parse_block("endgeneration"));
    loops_ = loops;
    return statement;
  }

  Result<Statement> parse_macro(Position where) {
    Statement statement{.kind = StatementKind::kMacro, .where = where};
    HEADWATER_ASSIGN_OR_RETURN(statement.target.symbol, parse_name());
    HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator("("));
    while (!tokens_.take_operator(")")) {
      Parameter parameter;
      const Position name_where = tokens_.where();
      HEADWATER_ASSIGN_OR_RETURN(parameter.symbol, parse_name());
      for (const Parameter& other : statement.parameters) {
        if (other.symbol != parameter.symbol) continue;
        return error_at(name_where, ErrorCode::kInvalidArgument, "the macro has the parameter \"{}\" twice",
                        symbols_.name(parameter.symbol));
      }
      if (tokens_.take_operator("=")) {
        HEADWATER_ASSIGN_OR_RETURN(parameter.preset, expressions_.parse());
      } else if (!statement.parameters.empty() && statement.parameters.back().preset) {
        return tokens_.unexpected("\"=\"");
      }
      statement.parameters.push_back(std::move(parameter));
      if (!tokens_.is_operator(")")) HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator(","));
    }
    HEADWATER_RETURN_IF_ERROR(end_block());
    const size_t loops = std::exchange(loops_, 0);
    HEADWATER_ASSIGN_OR_RETURN(statement.body, parse_block("endmacro"));
    loops_ = loops;
    return statement;
  }

  Symbols symbols_;
  TokenStream tokens_;
  ExpressionParser expressions_;
  size_t loops_ = 0;  // that a break could leave
};

}  // namespace

Result<Template> parse_template(std::string_view source, uint32_t tokens_max, uint32_t depth_max) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source, tokens_max));
  return StatementParser(std::move(tokens), depth_max).run();
}

}  // namespace headwater::text::jinja
