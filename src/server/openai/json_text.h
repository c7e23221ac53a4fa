// JSON from strangers: parsed within limits that hold before memory is taken for what exceeds them.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/openai/error.h"

namespace headwater::server::openai {

// One JSON text, valid UTF-8, without duplicate keys and lone surrogates, nested at most kJsonDepthMax deep, of at most
// kJsonValuesMax values. Everything else is status 400. A number too large for a double becomes infinite: whoever reads
// a number checks it.
std::optional<ApiError> parse_json(std::string_view text, boost::json::value& out);

// At most 80 bytes of whole characters, as a text may be quoted in a message.
std::string cut_text(std::string_view text);
// A value as JSON, cut likewise.
std::string quoted(const boost::json::value& value);

// Status 400: "field" is value; expected ...
ApiError wrong_value(std::string_view field, const boost::json::value& value, std::string_view expected);

}  // namespace headwater::server::openai
