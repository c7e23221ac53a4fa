// The parts of a tokenizer.json that describe steps: normalizer, pre_tokenizer, decoder, post_processor. Whatever is not
// known, or would be done differently here, is kUnsupported by name.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "core/core.h"
#include "text/tokenizer_spec.h"

namespace headwater::text {

// An object of the file whose fields are all known.
class JsonFields {
 public:
  // kCorrupt when value is no object; kUnsupported when it has a field that is not among `known`.
  static Result<JsonFields> create(const boost::json::value& value, std::string_view what,
                                   std::initializer_list<std::string_view> known);

  const boost::json::value* find(std::string_view name) const;  // null where it is absent or null
  Result<std::string_view> string(std::string_view name) const;
  Result<bool> flag(std::string_view name, bool otherwise) const;
  std::string_view what() const { return what_; }

 private:
  const boost::json::object* object_ = nullptr;
  std::string what_;
};

// The string at `type`; kCorrupt where there is none.
Result<std::string_view> type_of(const boost::json::value& value, std::string_view what);

Status read_normalizer(const boost::json::value& value, TokenizerSpec& spec);
Status read_pre_tokenizer(const boost::json::value& value, TokenizerSpec& spec);
Status read_post_processor(const boost::json::value& value, TokenizerSpec& spec);
Status read_decoder(const boost::json::value& value, TokenizerSpec& spec);

}  // namespace headwater::text
