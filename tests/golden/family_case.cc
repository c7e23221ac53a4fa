#include "golden/family_case.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <stdexcept>

#include "golden/json_lines.h"
#include "model/write_gguf.h"
#include "support/gguf_writer.h"
#include "text/write_tokenizer.h"

namespace headwater::testing {
namespace {

namespace json = boost::json;

// Element i of a tensor is made of word(i): splitmix64(fnv1a64(name) + i).
class Words {
 public:
  explicit Words(std::string_view name) {
    for (const char c : name) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  uint64_t operator()(uint64_t index) const {
    uint64_t z = state_ + index + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

uint64_t count_of(std::span<const uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

std::vector<float> make_floats(const json::array& tensor, uint64_t count) {
  const Words word(tensor[0].as_string());
  const auto center = tensor[3].to_number<float>(), spread = tensor[4].to_number<float>();
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    values[i] = center + spread * (static_cast<float>(word(i) >> 40) * 0x1p-23f - 1.0f);
  }
  return values;
}

std::vector<uint8_t> make_bytes(const json::array& tensor, uint64_t count) {
  const Words word(tensor[0].as_string());
  const auto low = tensor[3].to_number<uint64_t>(), span = tensor[4].to_number<uint64_t>();
  std::vector<uint8_t> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<uint8_t>(low + (word(i) >> 40) % span);
  return values;
}

std::vector<uint64_t> shape_of(const json::array& tensor) {
  return json::value_to<std::vector<uint64_t>>(tensor[2]);
}

// Rows of q and k: of each head, rows i and i + half come to lie side by side.
std::vector<float> with_adjacent_pairs(const std::vector<float>& values, uint64_t rows, uint64_t heads) {
  const uint64_t columns = values.size() / rows, head = rows / heads, half = head / 2;
  std::vector<float> out(values.size());
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t at = row % head;
    const uint64_t from = row - at + at % 2 * half + at / 2;
    std::copy_n(&values[from * columns], columns, &out[row * columns]);
  }
  return out;
}

void write_entry(GgufWriter& writer, const std::string& key, const json::value& value) {
  if (value.is_bool()) {
    writer.value(key, value.get_bool());
  } else if (value.is_string()) {
    writer.value(key, std::string(value.get_string()));
  } else if (value.is_double()) {
    writer.value(key, static_cast<float>(value.get_double()));
  } else {
    writer.value(key, value.to_number<uint32_t>());
  }
}

// A number of OCP Microscaling's E2M1: sign, two bits of exponent, one of fraction.
float e2m1(uint32_t bits) {
  const uint32_t exponent = bits >> 1 & 3, fraction = bits & 1;
  const float size = exponent == 0
                         ? 0.5f * static_cast<float>(fraction)
                         : std::ldexp(1.0f + 0.5f * static_cast<float>(fraction), static_cast<int>(exponent) - 1);
  return bits & 8 ? -size : size;
}

// A folder of this process, removed with it: what is mapped stays.
struct Scratch {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("headwater_family_{}", getpid());
  ~Scratch() { std::filesystem::remove_all(path); }
};

constexpr const char* kTokenizer = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})";

}  // namespace

std::vector<FamilyCase> FamilyCase::read(const std::string& path) {
  std::vector<FamilyCase> cases;
  for (const json::object& line : read_json_lines(path)) cases.push_back(FamilyCase(line));
  return cases;
}

FamilyCase::FamilyCase(const json::object& line)
    : name_(line.at("name").as_string()),
      config_(line.at("config").as_object()),
      gguf_(line.at("gguf").as_object()),
      tokens_(json::value_to<std::vector<TokenId>>(line.at("tokens"))) {
  for (const json::value& tensor : line.at("tensors").as_array()) tensors_.push_back(tensor.as_array());
  const double unit = line.at("logit_unit").as_double();
  for (const json::value& logit : line.at("logits").as_array()) {
    logits_.push_back(static_cast<float>(unit * static_cast<double>(logit.as_int64())));
  }
}

void FamilyCase::write_folder(const std::string& path, Projections projections) const {
  std::filesystem::create_directories(path);
  std::ofstream(path + "/config.json") << json::serialize(config_);
  json::object header;
  std::string data;
  const auto append = [&](json::string_view name, json::string_view dtype, const json::value& shape,
                          const auto& values) {
    const uint64_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", json::array{begin, data.size()}}};
  };
  for (const json::array& tensor : tensors_) {
    const std::string name(tensor[0].as_string());
    const uint64_t count = count_of(shape_of(tensor));
    if (tensor[1].as_string() == "U8") {
      append(name, "U8", tensor[2], make_bytes(tensor, count));
    } else if (projections != Projections::kF32 && name.ends_with("_proj.weight")) {
      const std::vector<float> scale = {tensor[4].to_number<float>() / kF8E4M3Max};
      std::vector<uint8_t> eights;
      std::vector<uint16_t> sixteens;
      for (const float value : make_floats(tensor, count)) {
        eights.push_back(f32_to_f8_e4m3(value / scale[0]));
        sixteens.push_back(f32_to_bf16(f8_e4m3_to_f32(eights.back()) * scale[0]));
      }
      if (projections == Projections::kF8AsBF16) {
        append(name, "BF16", tensor[2], sixteens);
      } else {
        append(name, "F8_E4M3", tensor[2], eights);
        append(name + "_scale", "F32", json::array{1}, scale);
      }
    } else {
      append(name, "F32", tensor[2], make_floats(tensor, count));
    }
  }
  std::string text = json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t bytes = text.size();
  std::ofstream file(path + "/model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  file << text << data;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

Result<model::Checkpoint> FamilyCase::folder(Projections projections) const {
  const Scratch scratch;
  write_folder(scratch.path, projections);
  return model::Checkpoint::open(scratch.path);
}

Result<model::Checkpoint> FamilyCase::quantized(DType dtype) const {
  const Scratch scratch;
  const std::string file = scratch.path + "/out.gguf";
  write_folder(scratch.path, Projections::kF32);
  std::ofstream(scratch.path + "/tokenizer.json") << kTokenizer;
  HEADWATER_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::open(scratch.path));
  HEADWATER_RETURN_IF_ERROR(model::write_gguf(checkpoint, name_, dtype, file, text::write_tokenizer, {}));
  return model::Checkpoint::open(file);
}

FamilyCase::Values FamilyCase::source(const json::value& name) const {
  for (const json::array& tensor : tensors_) {
    if (tensor[0] != name) continue;
    const std::vector<uint64_t> shape = shape_of(tensor);
    if (tensor[1].as_string() == "F32") return {shape, make_floats(tensor, count_of(shape))};
    const std::vector<uint8_t> bytes = make_bytes(tensor, count_of(shape));
    return {shape, {bytes.begin(), bytes.end()}};
  }
  throw std::runtime_error("no tensor " + json::serialize(name));
}

FamilyCase::Values FamilyCase::from_recipe(const json::object& recipe) const {
  Values made;
  if (recipe.contains("values")) {
    made.values = json::value_to<std::vector<float>>(recipe.at("values"));
    made.shape = {made.values.size()};
  } else if (recipe.contains("mxfp4")) {
    const json::array& parts = recipe.at("mxfp4").as_array();
    const Values blocks = source(parts[0]), scales = source(parts[1]);
    for (size_t i = 0; i < blocks.values.size(); ++i) {
      const auto byte = static_cast<uint32_t>(blocks.values[i]);
      const int exponent = static_cast<int>(scales.values[i / 16]) - 127;
      for (const uint32_t bits : {byte & 15, byte >> 4}) made.values.push_back(std::ldexp(e2m1(bits), exponent));
    }
    made.shape = {scales.shape[0], scales.shape[1], scales.shape[2] * 32};
  } else {
    const json::array& sources = recipe.at("from").as_array();
    for (const json::value& name : sources) {
      Values next = source(name);
      made.values.insert(made.values.end(), next.values.begin(), next.values.end());
      made.shape = next.shape;
    }
    if (sources.size() > 1) made.shape.insert(made.shape.begin(), sources.size());
  }
  if (recipe.contains("pairs_of_heads")) {
    made.values = with_adjacent_pairs(made.values, made.shape[0], recipe.at("pairs_of_heads").to_number<uint64_t>());
  }
  if (recipe.contains("rows")) {  // every step-th of dimension 1
    const auto [first, step] = json::value_to<std::array<uint64_t, 2>>(recipe.at("rows"));
    const uint64_t rows = made.shape[1], columns = made.shape.size() > 2 ? made.shape[2] : 1;
    std::vector<float> kept;
    for (uint64_t at = 0; at < made.values.size(); at += columns) {
      if (at / columns % rows % step != first) continue;
      kept.insert(kept.end(), &made.values[at], &made.values[at] + columns);
    }
    made.values = kept;
    made.shape[1] /= step;
  }
  if (recipe.contains("add")) {
    for (float& value : made.values) value += recipe.at("add").to_number<float>();
  }
  return made;
}

std::vector<std::byte> FamilyCase::gguf_image() const {
  GgufWriter writer;
  const std::string architecture(gguf_.at("architecture").as_string());
  writer.value("general.architecture", architecture);
  writer.value("general.name", name_);
  for (const auto& [key, value] : gguf_.at("metadata").as_object()) {
    write_entry(writer, architecture + "." + std::string(key), value);
  }
  for (const json::value& recipe : gguf_.at("tensors").as_array()) {
    const Values made = from_recipe(recipe.as_object());
    const std::vector<uint64_t> shape(made.shape.rbegin(), made.shape.rend());
    writer.tensor(recipe.as_object().at("name").as_string(), DType::kF32, shape, made.values);
  }
  return writer.image();
}

}  // namespace headwater::testing
