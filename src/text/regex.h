// Regular expressions as tokenizer.json writes them (Oniguruma's syntax), matched by PCRE2: UTF-8, Unicode properties, JIT
// where it is there. What the two would read differently is translated (`\s`, `\S`, `\w`: PCRE2's own differ from Unicode's
// White_Space and Alphabetic; scripts) or refused by name. Immutable: any number of threads may match, each with its Space.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/core.h"
#include "text/utf8.h"

namespace headwater::text {

class Regex {
 public:
  struct Match {
    size_t begin;
    size_t end;
  };
  class Space {  // what one thread needs to match
   public:
    Space();
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

   private:
    friend class Regex;
    void* match_data_;
  };

  // kUnsupported when an expression is not understood, or would mean something else. match_limit bounds the steps of one
  // match, so that no text takes exponential time; where it is hit nothing more matches.
  static Result<Regex> create(std::string_view expression, uint32_t match_limit = 10'000'000);
  static std::string escape(std::string_view literal);  // an expression that matches just this
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The first match at or behind `from` in text, which is valid UTF-8.
  std::optional<Match> find(std::string_view text, size_t from, Space& space) const;

  // Calls visit(Match) for each match in turn. An empty match counts unless it lies where the one before ended.
  template <typename Visit>
  void each_match(std::string_view text, Space& space, Visit visit) const {
    size_t last_end = std::string_view::npos;
    for (size_t from = 0; from <= text.size();) {
      const std::optional<Match> match = find(text, from, space);
      if (!match) return;
      if (match->begin == match->end && match->end == last_end) {
        if (from == text.size()) return;
        from += first_character(text.substr(from)).bytes;
        continue;
      }
      from = last_end = match->end;
      visit(*match);
    }
  }

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace headwater::text
