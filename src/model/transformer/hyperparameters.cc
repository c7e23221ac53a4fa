#include "model/transformer/hyperparameters.h"

#include <algorithm>
#include <cmath>

#include "core/shown.h"
#include "model/transformer/known_keys.h"

namespace headwater::model {
namespace {

using Leaves = std::map<std::string, const json::Value*, std::less<>>;

// Nesting is bounded by json::parse().
void flatten(const json::Value& value, const std::string& path, Leaves& leaves) {
  if (!value.is_object()) {
    leaves.try_emplace(path, &value);
    return;
  }
  for (const auto& [name, member] : value.get_object()) {
    flatten(member, path.empty() ? std::string(name) : fmt::format("{}.{}", path, std::string_view(name)), leaves);
  }
}

// The leaf under the name it had first: each rule of kRenamed once, in order.
std::string first_name(std::string path) {
  for (const Renamed& rule : kRenamed) {
    if (path.starts_with(rule.prefix)) path = std::string(rule.first_name) + path.substr(rule.prefix.size());
  }
  return path;
}

// Where a leaf stands under several names, the first name counts.
Leaves under_first_names(const Leaves& leaves) {
  Leaves renamed;
  for (const auto& [path, value] : leaves) {
    if (first_name(path) == path) renamed.emplace(path, value);
  }
  for (const auto& [path, value] : leaves) renamed.try_emplace(first_name(path), value);
  return renamed;
}

// JSON that says "not used".
bool is_empty(const json::Value& value) {
  return value.is_null() || (value.is_bool() && !value.get_bool()) || (value.is_array() && value.get_array().empty());
}

std::string describe(const json::Value& value) {
  if (value.is_string()) return quoted(value.get_string());
  if (value.is_bool()) return fmt::format("{}", value.get_bool());
  if (value.is_array()) return fmt::format("a list of {}", value.get_array().size());
  if (value.is_int64()) return fmt::format("{}", value.get_int64());
  if (value.is_uint64()) return fmt::format("{}", value.get_uint64());
  if (value.is_double()) return fmt::format("{:#}", value.get_double());  // 64.0, which is no integer here
  return value.is_object() ? "an object" : "null";
}

Result<double> as_number(const json::Value& value, std::string_view key) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return error(ErrorCode::kCorrupt, "{} is {}; expected a number", key, describe(value));
}

bool known_prefix(std::string_view key, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [key](std::string_view prefix) {
    return prefix.ends_with('*') ? key.starts_with(prefix.substr(0, prefix.size() - 1)) : key == prefix;
  });
}

Status unknown(std::string_view key, std::string_view value) {
  return error(ErrorCode::kUnsupported,
               "{} is {}: it may stand for a variant that is not computed here; remove it from the file if it does not",
               key, value);
}

std::string range(auto low, auto high) {
  return fmt::format("{} to {}", low, high);
}

}  // namespace

Result<Hyperparameters> Hyperparameters::open(const Checkpoint& checkpoint) {
  Hyperparameters h(checkpoint);
  if (const GgufFile* file = checkpoint.gguf()) {
    HEADWATER_ASSIGN_OR_RETURN(h.architecture_, file->string_at("general.architecture"));
    if (file->has("general.name")) {
      HEADWATER_ASSIGN_OR_RETURN(h.name_, file->string_at("general.name"));
    }
    return h;
  }
  Leaves leaves;
  flatten(checkpoint.folder()->config(), "", leaves);
  h.leaves_ = under_first_names(leaves);
  h.architecture_ = h.text({"", "model_type"}, "");
  HEADWATER_RETURN_IF_ERROR(h.failure_);
  if (h.architecture_.empty()) return error(ErrorCode::kNotFound, "config.json has no model_type");
  h.name_ = h.text({"", "_name_or_path"}, "");
  HEADWATER_RETURN_IF_ERROR(h.failure_);
  return h;
}

Status Hyperparameters::unexpected(Key key, std::string_view found, std::string_view expected) const {
  const std::string name = key_text(key);
  std::string place;
  if (is_gguf()) {
    const auto& entries = checkpoint_->gguf()->entries();
    const auto entry = std::ranges::find(entries, name, &GgufFile::Entry::key);
    if (entry != entries.end()) place = fmt::format("offset {}: ", entry->offset);
  }
  return error(ErrorCode::kCorrupt, "{}{} is {}; expected {}", place, name, found, expected);
}

std::string Hyperparameters::key_text(Key key) const {
  return is_gguf() ? fmt::format("{}.{}", architecture_, key.gguf) : std::string(key.folder);
}

const json::Value* Hyperparameters::find(Key key) const {
  const auto found = leaves_.find(key.folder);
  return found == leaves_.end() || found->second->is_null() ? nullptr : found->second;
}

bool Hyperparameters::has(Key key) const {
  if (!is_gguf()) return !key.folder.empty() && find(key) != nullptr;
  return !key.gguf.empty() && checkpoint_->gguf()->has(key_text(key));
}

void Hyperparameters::fail(Status status) {
  if (failure_) failure_ = std::move(status);
}

// Marks the key as read and keeps the error.
template <typename T>
std::optional<T> Hyperparameters::take(Key key, Result<T> value) {
  read_.insert(key_text(key));
  if (value) return std::move(value).value();
  fail(value.status());
  return {};
}

void Hyperparameters::say(std::string_view gguf_key, GgufNumbers::Value value) {
  if (!is_gguf() && !gguf_key.empty()) in_gguf_.values.insert_or_assign(std::string(gguf_key), std::move(value));
}

void Hyperparameters::say_tensor(std::string_view name, std::span<const double> values) {
  if (!is_gguf())
    in_gguf_.tensors.insert_or_assign(std::string(name), std::vector<float>(values.begin(), values.end()));
}

uint32_t Hyperparameters::integer(Key key, uint64_t low, uint64_t high, std::optional<uint32_t> absent) {
  const uint32_t value = absent && !has(key) ? *absent : read_integer(key, low, high);
  say(key.gguf, value);
  return value;
}

double Hyperparameters::number(Key key, double low, double high, std::optional<double> absent) {
  const double value = absent && !has(key) ? *absent : read_number(key, low, high);
  say(key.gguf, static_cast<float>(value));
  return value;
}

uint32_t Hyperparameters::read_integer(Key key, uint64_t low, uint64_t high) {
  const std::string name = key_text(key);
  const auto read = [&]() -> Result<uint64_t> {
    if (is_gguf()) return checkpoint_->gguf()->unsigned_at(name);
    const json::Value* value = find(key);
    if (value == nullptr) return error(ErrorCode::kNotFound, "config.json has no {}", name);
    if (value->is_uint64()) return value->get_uint64();
    if (value->is_int64() && value->get_int64() >= 0) return static_cast<uint64_t>(value->get_int64());
    return unexpected(key, describe(*value), "an integer from " + range(low, high));
  };
  const std::optional<uint64_t> value = take(key, read());
  if (!value) return static_cast<uint32_t>(low);
  if (*value >= low && *value <= high) return static_cast<uint32_t>(*value);
  fail(unexpected(key, fmt::format("{}", *value), range(low, high)));
  return static_cast<uint32_t>(low);
}

double Hyperparameters::read_number(Key key, double low, double high) {
  const std::string name = key_text(key);
  const auto read = [&]() -> Result<double> {
    if (is_gguf()) return checkpoint_->gguf()->number_at(name);
    const json::Value* value = find(key);
    if (value == nullptr) return error(ErrorCode::kNotFound, "config.json has no {}", name);
    return as_number(*value, name);
  };
  const std::optional<double> value = take(key, read());
  if (!value) return low;
  if (*value >= low && *value <= high) return *value;
  fail(unexpected(key, fmt::format("{}", *value), range(low, high)));
  return low;
}

bool Hyperparameters::flag(Key key, bool absent) {
  if (!has(key)) return absent;
  const auto read = [&]() -> Result<bool> {
    if (is_gguf()) return checkpoint_->gguf()->bool_at(key_text(key));
    const json::Value* value = find(key);
    if (value->is_bool()) return value->get_bool();
    return unexpected(key, describe(*value), "true or false");
  };
  return take(key, read()).value_or(absent);
}

std::string Hyperparameters::text(Key key, std::string_view absent) {
  if (!has(key)) return std::string(absent);
  const auto read = [&]() -> Result<std::string> {
    if (is_gguf()) {
      HEADWATER_ASSIGN_OR_RETURN(const std::string_view value, checkpoint_->gguf()->string_at(key_text(key)));
      return std::string(value);
    }
    const json::Value* value = find(key);
    if (value->is_string()) return std::string(value->get_string());
    return unexpected(key, describe(*value), "a text");
  };
  return take(key, read()).value_or(std::string(absent));
}

std::vector<double> Hyperparameters::numbers(Key key, size_t count, double low, double high) {
  if (!has(key)) return {};
  const std::string name = key_text(key);
  const auto read = [&]() -> Result<std::vector<double>> {
    if (is_gguf()) return checkpoint_->gguf()->numbers_at(name);
    const json::Value* list = find(key);
    if (!list->is_array()) return unexpected(key, describe(*list), "a list");
    std::vector<double> values;
    for (const json::Value& item : list->get_array()) {
      HEADWATER_ASSIGN_OR_RETURN(values.emplace_back(), as_number(item, name));
    }
    return values;
  };
  std::vector<double> values = take(key, read()).value_or(std::vector<double>());
  if (failure_ && values.size() != count) {
    fail(unexpected(key, fmt::format("a list of {}", values.size()), fmt::format("{} numbers", count)));
  }
  for (const double value : values) {
    if (!(value >= low && value <= high)) {
      fail(unexpected(key, fmt::format("a list with {}", value), range(low, high)));
    }
  }
  return failure_ ? values : std::vector<double>(count, low);
}

std::vector<std::string> Hyperparameters::texts(Key key, size_t count) {
  if (is_gguf() || !has(key)) return {};
  std::vector<std::string> values;
  const json::Value* list = find(key);
  read_.insert(std::string(key.folder));
  bool all = list->is_array();
  if (all) {
    for (const json::Value& item : list->get_array()) {
      all = all && item.is_string();
      if (all) values.emplace_back(item.get_string());
    }
  }
  if (!all || values.size() != count) {
    fail(unexpected(key, describe(*list), fmt::format("a list of {} texts", count)));
    values.resize(count);
  }
  return values;
}

std::vector<bool> Hyperparameters::flags(Key key, size_t count) {
  if (!is_gguf() || !has(key)) return {};
  std::vector<bool> values = take(key, checkpoint_->gguf()->bools_at(key_text(key))).value_or(std::vector<bool>());
  if (failure_ && values.size() != count) {
    fail(unexpected(key, fmt::format("a list of {}", values.size()), fmt::format("{} flags", count)));
  }
  values.resize(count);
  return values;
}

void Hyperparameters::expect_text(Key key, std::string_view known, std::string_view absent) {
  const std::string value = text(key, absent);
  if (value == known) return;
  fail(error(ErrorCode::kUnsupported, "{} is {}, which is not computed here; known: \"{}\"", key_text(key),
             quoted(value), known));
}

void Hyperparameters::expect_flag(Key key, bool known) {
  if (flag(key, known) == known) return;
  fail(error(ErrorCode::kUnsupported, "{} is {}, which is not computed here; known: {}", key_text(key), !known, known));
}

void Hyperparameters::expect_number(Key key, double known) {
  const double value = has(key) ? number(key, -1e30, 1e30) : known;
  if (value == known) return;
  fail(error(ErrorCode::kUnsupported, "{} is {}, which is not computed here; known: {}", key_text(key), value, known));
}

std::vector<double> Hyperparameters::tensor(std::string_view name, size_t count, double low, double high) {
  const Tensor* found = checkpoint_->find(name);
  if (found == nullptr) return {};
  tensors_read_.emplace(name);
  if (found->columns() != count || found->rows() != 1 || found->dtype != DType::kF32) {
    fail(error(ErrorCode::kCorrupt, "tensor {} has shape [{}, {}] and type {}; expected [{}] of F32", name,
               found->columns(), found->rows(), to_string(found->dtype), count));
    return {};
  }
  std::vector<float> values(count);
  dequantize_row(DType::kF32, found->data.data(), count, values.data());
  for (const float value : values) {
    if (!(value >= low && value <= high)) {
      fail(error(ErrorCode::kCorrupt, "tensor {} holds {}; expected {} to {}", name, value, low, high));
    }
  }
  return {values.begin(), values.end()};
}

Status Hyperparameters::finish() const {
  HEADWATER_RETURN_IF_ERROR(failure_);
  if (const GgufFile* file = checkpoint_->gguf()) {
    const std::string prefix = architecture_ + ".";
    for (const GgufFile::Entry& entry : file->entries()) {
      if (!entry.key.starts_with(prefix) || read_.contains(entry.key)) continue;
      if (known_prefix(entry.key.substr(prefix.size()), kHarmlessInGguf)) continue;
      return unknown(fmt::format("offset {}: {}", entry.offset, shown(entry.key)), file->describe(entry.key, 60));
    }
    return {};
  }
  for (const auto& [path, value] : leaves_) {
    if (read_.contains(path) || is_empty(*value) || known_prefix(path, kHarmlessInConfig)) continue;
    return unknown(fmt::format("{} of config.json", shown(path)), describe(*value));
  }
  return {};
}

}  // namespace headwater::model
