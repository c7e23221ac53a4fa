// The fields of requests, in one table: decode.h checks with it and openapi.h describes with it.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace headwater::server::openai {

// Where a field may stand; a set of bits.
using Endpoints = unsigned;
inline constexpr Endpoints kInCompletions = 1, kInChat = 2, kInTokenize = 4, kInDetokenize = 8;
inline constexpr Endpoints kInGeneration = kInCompletions | kInChat;

enum class FieldKind : uint8_t {
  kBoolean,
  kInteger,            // within [min, max]; 5.0 is an integer too
  kNumber,             // within [min, max], or (min, max] when above_min
  kString,             // of min to max bytes
  kObject,             // whatever it holds
  kAny,                // only of fields whose neutral values are all that is accepted
  kLogprobs,           // a boolean or an integer within [min, max]
  kStops,              // a string or a list of at most max strings
  kTokenIds,           // at most max ids of the vocabulary
  kLogitBias,          // an object {"token id": bias within [min, max]}
  kPrompt,             // a string, a list of strings, token ids, or a list of lists of token ids
  kText,               // one string of any length
  kMessages,           // a list of {role, content}
  kStreamOptions,      // an object {include_usage}
  kObjects,            // a list of objects
  kTemplateVariables,  // an object without the names in kTemplateOwnNames
};

enum class Support : uint8_t {
  kFull,
  kNoEffect,  // its type is checked; it is about accounts and storage, which a single server has not
  kNeutral,   // known but not supported: only values that ask for nothing are accepted
};

struct Field {
  std::string_view name;
  Endpoints endpoints = 0;
  FieldKind kind = FieldKind::kAny;
  std::string_view sentence;
  Support support = Support::kFull;
  double min = -std::numeric_limits<double>::infinity();  // infinite: no limit but the type's
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;
  bool required = false;
  std::string_view preset = {};   // the default as JSON; "": depends, or none
  std::string_view neutral = {};  // JSON list of the values that ask for nothing; null always does
};

// What chat templates see besides a request's variables.
inline constexpr std::string_view kTemplateOwnNames[] = {"messages",  "tools",    "documents", "add_generation_prompt",
                                                         "bos_token", "eos_token"};

std::span<const Field> fields();
// Null when requests of that endpoint have no such field.
const Field* find_field(std::string_view name, Endpoints endpoint);
// What a field accepts, for people: "a number above 0, at most 1".
std::string allowed_values(const Field& field);

}  // namespace headwater::server::openai
