// The numbers that describe a model, read from either format by one call each:
//
//   GGUF     metadata whose key begins with the architecture: "llama.block_count"
//   folder   config.json; nested values by a path ("rope_scaling.factor"), so that everything is a flat list of leaves
//
// Every read names its range. The first error is kept and later reads give the low end of their range (so that what is
// computed from them stays in bounds); status() says how it went. finish() also refuses what nobody read: a key that is
// neither known to change nothing nor empty (null, false, an empty list) may stand for a variant that is not computed here.
//
// What is read from a folder is kept under its names of GGUF, with what stands for an absent number: that is the metadata of
// the same model as a GGUF file. say() adds what only GGUF keeps.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/core.h"
#include "model/checkpoint.h"

namespace headwater::model {

// One number under its two names: the GGUF key behind "<architecture>.", and the path in config.json. Empty: the format
// has no such key, and the number is absent there.
struct Key {
  std::string_view gguf;
  std::string_view folder;
};

// What GGUF keeps of a folder's numbers. The C++ type of a value is its GGUF type.
struct GgufNumbers {
  using Value = std::variant<uint32_t, float, bool, std::string, std::vector<bool>>;
  std::map<std::string, Value, std::less<>> values;                // by the key behind "<architecture>."
  std::map<std::string, std::vector<float>, std::less<>> tensors;  // by name
};

class Hyperparameters {
 public:
  // Finds out what the model calls itself: general.architecture, or model_type. kNotFound, kCorrupt. `checkpoint` outlives it.
  static Result<Hyperparameters> open(const Checkpoint& checkpoint);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  bool is_gguf() const { return checkpoint_->gguf() != nullptr; }
  const std::string& architecture() const { return architecture_; }
  const std::string& name() const { return name_; }  // as the file calls itself; may be empty
  std::string key_text(Key key) const;               // as messages name it

  bool has(Key key) const;
  // Inclusive ranges. With `absent` the key may be missing.
  uint32_t integer(Key key, uint64_t low, uint64_t high, std::optional<uint32_t> absent = {});
  double number(Key key, double low, double high, std::optional<double> absent = {});
  bool flag(Key key, bool absent);
  std::string text(Key key, std::string_view absent);
  std::vector<double> numbers(Key key, size_t count, double low, double high);  // empty when absent
  std::vector<std::string> texts(Key key, size_t count);  // a list of config.json; empty when absent
  std::vector<bool> flags(Key key, size_t count);         // a list of GGUF; empty when absent

  // For what only one value of is computed here. kUnsupported names the key, the value and the one that is known.
  void expect_text(Key key, std::string_view known, std::string_view absent);
  void expect_flag(Key key, bool known);  // absent: `known`
  void expect_number(Key key, double known);
  void ignore(Key key) { read_.insert(key_text(key)); }  // changes nothing in this family

  // A small tensor that holds numbers, not weights (factors of RoPE): [count], each in the range; empty when absent.
  std::vector<double> tensor(std::string_view name, size_t count, double low, double high);
  const std::set<std::string, std::less<>>& tensors_read() const { return tensors_read_; }

  // Of a folder; nothing happens for a GGUF file.
  void say(std::string_view gguf_key, GgufNumbers::Value value);
  void say_tensor(std::string_view name, std::span<const double> values);
  const GgufNumbers& in_gguf() const { return in_gguf_; }

  void fail(Status status);
  const Status& status() const { return failure_; }
  Status finish() const;

 private:
  explicit Hyperparameters(const Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}
  const json::Value* find(Key key) const;  // of config.json; null when absent or null
  Status unexpected(Key key, std::string_view found, std::string_view expected) const;
  template <typename T>
  std::optional<T> take(Key key, Result<T> value);
  uint32_t read_integer(Key key, uint64_t low, uint64_t high);
  double read_number(Key key, double low, double high);

  const Checkpoint* checkpoint_;
  std::string architecture_;
  std::string name_;
  std::map<std::string, const json::Value*, std::less<>> leaves_;  // of config.json
  mutable std::set<std::string, std::less<>> read_;
  std::set<std::string, std::less<>> tensors_read_;
  GgufNumbers in_gguf_;
  Status failure_;
};

}  // namespace headwater::model
