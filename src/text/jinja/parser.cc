#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/expression_parser.h"
#include "text/jinja/token_stream.h"

namespace headwater::text::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, uint32_t depth_max)
      : tokens_(std::move(tokens), depth_max), expressions_(tokens_) {}

  Result<Body> run() {
    HEADWATER_ASSIGN_OR_RETURN(Body body, parse_body({}));
    HEADWATER_RETURN_IF_ERROR(expressions_.check_calls());
    return body;
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
        HEADWATER_ASSIGN_OR_RETURN(output.expression, expressions_.parse());
        HEADWATER_RETURN_IF_ERROR(tokens_.expect(TokenKind::kVariableEnd, "\"}}\""));
        body.push_back(std::move(output));
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tokens_.is_name(end); }))
          return body;
        HEADWATER_ASSIGN_OR_RETURN(Statement statement, parse_statement());
        body.push_back(std::move(statement));
      }
    }
    if (ends.size() > 0) return tokens_.unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return body;
  }

  Result<Statement> parse_statement() {
    const Position where = tokens_.where();
    HEADWATER_ASSIGN_OR_RETURN(const std::string name, tokens_.expect_name());
    if (name == "if") return parse_if(where);
    if (name == "for") return parse_for(where);
    if (name == "set") return parse_set(where);
    static constexpr std::string_view kParts[] = {"elif", "else", "endif", "endfor"};
    if (std::find(std::begin(kParts), std::end(kParts), name) != std::end(kParts)) {
      return error_at(where, ErrorCode::kInvalidArgument, "\"{}\" has no beginning", name);
    }
    return error_at(where, ErrorCode::kUnsupported, "the statement \"{}\" is not known here", name);
  }

  Status end_block() { return tokens_.expect(TokenKind::kBlockEnd, "\"%}\""); }

  Result<Statement> parse_if(Position where) {
    Statement statement{.kind = StatementKind::kIf, .where = where};
    do {
      Branch branch;
      HEADWATER_ASSIGN_OR_RETURN(branch.condition, expressions_.parse());
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

  Result<std::string> parse_target() {
    const Position where = tokens_.where();
    HEADWATER_ASSIGN_OR_RETURN(std::string name, tokens_.expect_name());
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None", "loop"};
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      return error_at(where, ErrorCode::kInvalidArgument, "\"{}\" cannot be assigned", name);
    }
    if (tokens_.is_operator(",")) {
      return error_at(tokens_.where(), ErrorCode::kUnsupported, "only one name can be assigned at a time here");
    }
    return name;
  }

  Result<Statement> parse_for(Position where) {
    Statement statement{.kind = StatementKind::kFor, .where = where};
    HEADWATER_ASSIGN_OR_RETURN(statement.name, parse_target());
    if (!tokens_.take_name("in")) return tokens_.unexpected("\"in\"");
    HEADWATER_ASSIGN_OR_RETURN(statement.expression, expressions_.parse_without_condition());
    Branch branch;
    if (tokens_.take_name("if")) {
      HEADWATER_ASSIGN_OR_RETURN(branch.condition, expressions_.parse());
    }
    if (tokens_.is_name("recursive")) {
      return error_at(tokens_.where(), ErrorCode::kUnsupported, "recursive loops are not known here");
    }
    HEADWATER_RETURN_IF_ERROR(end_block());
    HEADWATER_ASSIGN_OR_RETURN(branch.body, parse_body({"else", "endfor"}));
    statement.branches.push_back(std::move(branch));
    HEADWATER_RETURN_IF_ERROR(parse_else(statement, "endfor"));
    return statement;
  }

  Result<Statement> parse_set(Position where) {
    Statement statement{.kind = StatementKind::kSet, .where = where};
    HEADWATER_ASSIGN_OR_RETURN(statement.name, parse_target());
    if (tokens_.take_operator(".")) {
      HEADWATER_ASSIGN_OR_RETURN(statement.attribute, tokens_.expect_name());
    }
    if (tokens_.is(TokenKind::kBlockEnd) || tokens_.is_operator("|")) {
      return error_at(where, ErrorCode::kUnsupported, "a set block is not known here; use set name = value");
    }
    HEADWATER_RETURN_IF_ERROR(tokens_.expect_operator("="));
    HEADWATER_ASSIGN_OR_RETURN(statement.expression, expressions_.parse());
    HEADWATER_RETURN_IF_ERROR(end_block());
    return statement;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
};

}  // namespace

Result<Body> parse_template(std::string_view source, uint32_t depth_max) {
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return StatementParser(std::move(tokens), depth_max).run();
}

}  // namespace headwater::text::jinja
