// Metadata values as scalars and as text. Internal to the GGUF reader.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "model/gguf.h"

namespace headwater::model {

using GgufScalar = std::variant<uint64_t, int64_t, double, bool>;  // by signedness and kind, widened

// `type` is neither a string nor an array; `at` points to its scalar_bytes() bytes, unaligned.
GgufScalar load_scalar(GgufType type, const std::byte* at);

// One line of printable text for a checked value: a file's own characters never reach a terminal as control sequences.
// Strings are quoted, escaped and, beyond `characters_max` characters in all, cut ("..."); an array is "[n] first,
// few".
std::string describe_value(const GgufFile::Entry& entry, std::span<const std::byte> value, size_t characters_max);

}  // namespace headwater::model
