#include "model/write_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <regex>

#include "model/file_signals.h"
#include "model/output_file.h"
#include "model/safetensors_header.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"

namespace headwater::model {
namespace {

using headwater::testing::SafetensorsWriter;
using headwater::testing::TestFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "llama", "num_hidden_layers": 1, "max_position_embeddings": 512,
  "hidden_size": 64, "intermediate_size": 32, "vocab_size": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": true)";

// Writes what it was given.
Status write_texts(const TokenizerTexts& texts, uint64_t rows, GgufHeader& header) {
  header.value("texts",
               fmt::format("{}, {}, {}, {}", texts.tokenizer, texts.config, texts.chat_template, texts.generation));
  header.value("rows", rows);
  return texts.tokenizer == "unknown" ? error(ErrorCode::kUnsupported, "no such tokenizer") : Status();
}

std::vector<float> values_of(uint64_t rows, uint64_t columns, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(rows * columns);
  for (float& value : values) value = random.normal();
  return values;
}

// A folder with one layer, whose matrices hold values_of(rows, columns, rows).
class WriteGguf : public ::testing::Test {
 protected:
  WriteGguf() {
    const std::string layer = "model.layers.0.";
    const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) {
      weights_.tensor(name, DType::kF32, {rows, columns}, values_of(rows, columns, rows));
    };
    matrix("model.embed_tokens.weight", 6, 64);
    matrix(layer + "self_attn.q_proj.weight", 64, 64);
    matrix(layer + "self_attn.k_proj.weight", 32, 64);
    matrix(layer + "self_attn.v_proj.weight", 32, 64);
    matrix(layer + "self_attn.o_proj.weight", 64, 64);
    matrix(layer + "mlp.gate_proj.weight", 32, 64);
    matrix(layer + "mlp.up_proj.weight", 32, 64);
    matrix(layer + "mlp.down_proj.weight", 64, 32);
    for (const char* norm : {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                             "model.layers.0.post_attention_layernorm.weight"}) {
      weights_.tensor(norm, DType::kF32, {64}, values_of(1, 64, 9));
    }
    folder_.write("config.json", kConfig + std::string("}")).write("tokenizer.json", "the tokenizer");
  }

  Status write(DType dtype) { return write(dtype, weights_.image()); }
  Status write(DType dtype, std::span<const std::byte> image) {
    folder_.write("model.safetensors", image);
    auto opened = Checkpoint::open(folder_.path());
    if (!opened) return opened.status();
    return write_gguf(*opened, "tiny", dtype, path_, write_texts, [this](double part) { progress_.push_back(part); });
  }
  void expect_unsupported(const char* text) {
    const Status status = write(DType::kQ8_0);
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_FALSE(std::filesystem::exists(path_));
  }

  TestFolder folder_;
  SafetensorsWriter weights_;
  bool has_partial_file() const {
    return std::ranges::any_of(std::filesystem::directory_iterator(folder_.path()),
                               [](const auto& entry) { return entry.path().extension() == ".partial"; });
  }
  std::string path_ = folder_.file("out.gguf");
  std::vector<double> progress_;
};

TEST_F(WriteGguf, QuantisesMatricesAndKeepsVectors) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kBF16}) {
    const Status status = write(dtype);
    ASSERT_TRUE(status) << status.message();
    auto file = GgufFile::open(path_);
    ASSERT_TRUE(file) << file.status().message();
    EXPECT_EQ(file->tensors().size(), 11u);
    EXPECT_EQ(file->find("output_norm.weight")->dtype, DType::kF32);
    const Tensor* down = file->find("blk.0.ffn_down.weight");
    ASSERT_NE(down, nullptr);
    EXPECT_THAT(down->shape, ElementsAre(32, 64));
    const auto expected = headwater::testing::quantize(dtype, values_of(64, 32, 64));
    EXPECT_TRUE(std::ranges::equal(down->data, expected)) << to_string(dtype);
    EXPECT_EQ(progress_.back(), 1.0);
    EXPECT_FALSE(has_partial_file());
  }
}

// The definition in llama.cpp's converter: heads of [2, dim / 2] rows become [dim / 2, 2].
TEST_F(WriteGguf, MovesTheRowsOfQueriesAndKeysToAdjacentPairs) {
  ASSERT_TRUE(write(DType::kBF16));
  const GgufFile file = GgufFile::open(path_).value();
  for (const auto& [name, rows, moves] : {std::tuple{"blk.0.attn_q.weight", 64u, true},
                                          {"blk.0.attn_k.weight", 32u, true},
                                          {"blk.0.attn_v.weight", 32u, false}}) {
    const std::vector<float> values = values_of(rows, 64, rows);
    const Tensor* tensor = file.find(name);
    for (uint64_t head = 0; head < rows / 16; ++head) {
      for (uint64_t half = 0; half < 2; ++half) {
        for (uint64_t i = 0; i < 8; ++i) {
          const uint64_t from = head * 16 + half * 8 + i, to = moves ? head * 16 + 2 * i + half : from;
          float value = 0;
          dequantize_row(DType::kBF16, tensor->data.data() + to * 128, 1, &value);
          EXPECT_EQ(value, bf16_to_f32(f32_to_bf16(values[from * 64]))) << name << " row " << to;
        }
      }
    }
  }
}

TEST_F(WriteGguf, WritesWhatDescribesTheModelAndItsTokenizer) {
  ASSERT_TRUE(write(DType::kQ8_0));
  const GgufFile file = GgufFile::open(path_).value();
  EXPECT_EQ(file.string_at("general.architecture").value(), "llama");
  EXPECT_EQ(file.string_at("general.name").value(), "tiny");
  EXPECT_EQ(file.unsigned_at("general.file_type").value(), 7u);
  EXPECT_EQ(file.unsigned_at("llama.attention.key_length").value(), 16u);
  EXPECT_EQ(file.unsigned_at("llama.attention.head_count_kv").value(), 2u);
  EXPECT_EQ(file.number_at("llama.rope.freq_base").value(), 500000.0);
  EXPECT_EQ(file.unsigned_at("llama.vocab_size").value(), 6u);
  EXPECT_EQ(file.string_at("texts").value(), "the tokenizer, , , ");
  EXPECT_EQ(file.unsigned_at("rows").value(), 6u);
  folder_.write("tokenizer_config.json", "its configuration").write("chat_template.jinja", "its template");
  folder_.write("generation_config.json", "its ends");
  ASSERT_TRUE(write(DType::kQ8_0));
  EXPECT_EQ(GgufFile::open(path_)->string_at("texts").value(),
            "the tokenizer, its configuration, its template, its ends");
}

TEST_F(WriteGguf, ReadsF8WithItsScales) {
  std::vector<std::byte> codes(6 * 64, std::byte{0x38});
  folder_.write("config.json", std::regex_replace(kConfig + std::string("}"), std::regex("true"), "false"));
  weights_.tensor_bytes("lm_head.weight", "F8_E4M3", {6, 64}, codes);
  weights_.tensor("lm_head.weight_scale", DType::kF32, {1}, std::vector<float>{0.5f});
  ASSERT_TRUE(write(DType::kBF16));
  const GgufFile file = GgufFile::open(path_).value();
  float value = 0;
  dequantize_row(DType::kBF16, file.find("output.weight")->data.data(), 1, &value);
  EXPECT_EQ(value, 0.5f);
}

// Values of transformers' _compute_llama3_parameters for these settings: 1 / 8 for the longest waves, 1 for the shortest.
TEST_F(WriteGguf, WritesTheScalingsOfRope) {
  folder_.write("config.json", kConfig + std::string(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"));
  ASSERT_TRUE(write(DType::kQ8_0));
  const GgufFile file = GgufFile::open(path_).value();
  const Tensor* factors = file.find("rope_freqs.weight");
  ASSERT_NE(factors, nullptr);
  std::vector<float> values(8);
  dequantize_row(DType::kF32, factors->data.data(), 8, values.data());
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[7], 8.0f);
  folder_.write("config.json", kConfig + std::string(R"(, "rope_scaling": {"type": "linear", "factor": 2.0}})"));
  ASSERT_TRUE(write(DType::kQ8_0));
  EXPECT_EQ(GgufFile::open(path_)->number_at("llama.rope.scaling.factor").value(), 2.0);
}

TEST_F(WriteGguf, RefusesWhatGgufHasNoPlaceFor) {
  const auto with_config = [&](std::string_view more) {
    folder_.write("config.json", kConfig + std::string(more) + "}");
  };
  with_config(R"(, "model_type": "mamba")");
  expect_unsupported("model family 'mamba' (model_type) is not supported");
  with_config(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 1.0})");
  expect_unsupported(
      "config.json gives a scale of RoPE of 0.939124; a GGUF file of 'llama' has no place for it and "
      "would say 1.13863");
  with_config(R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false})");
  expect_unsupported("a frequency of RoPE of");
  with_config(R"(, "hidden_size": 1e3)");
  EXPECT_EQ(write(DType::kQ8_0).code(), ErrorCode::kCorrupt);
  with_config("");
  folder_.write("tokenizer.json", "unknown");
  expect_unsupported("no such tokenizer");
  folder_.write("tokenizer.json", "the tokenizer");
  weights_.tensor("model.layers.0.self_attn.q_proj.bias", DType::kF32, {64}, values_of(1, 64, 1));
  expect_unsupported("tensor model.layers.0.self_attn.q_proj.bias [64] is not part of the family 'llama'");
}

TEST_F(WriteGguf, RefusesAFileOfGguf) {
  ASSERT_TRUE(write(DType::kBF16));
  const Checkpoint written = Checkpoint::open(path_).value();
  const Status status = write_gguf(written, "tiny", DType::kQ8_0, folder_.file("again.gguf"), write_texts, {});
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("give a folder of safetensors"));
}

TEST_F(WriteGguf, RefusesValuesThatAreNotFinite) {
  std::vector<float> values = values_of(1, 64, 1);
  values[7] = std::numeric_limits<float>::infinity();
  values.resize(6 * 64);
  folder_.write("config.json", std::regex_replace(kConfig + std::string("}"), std::regex("true"), "false"));
  weights_.tensor_bytes("lm_head.weight", "F32", {6, 64}, std::as_bytes(std::span(values)));
  EXPECT_THAT(write(DType::kQ8_0).message(), HasSubstr("tensor output.weight, row 0 of the folder's: value 7 is inf"));
  EXPECT_FALSE(has_partial_file());
}

TEST_F(WriteGguf, RefusesNormsAndBiasesThatAreNotFinite) {
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<std::byte> image = weights_.image();
    const uint64_t norm =
        std::ranges::find(parse_safetensors(image)->tensors, "model.norm.weight", &Tensor::name)->file_offset;
    std::memcpy(&image[norm + 5 * sizeof(wrong)], &wrong, sizeof(wrong));
    const Status status = write(DType::kQ8_0, image);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("tensor output_norm.weight: value 5 is {}", wrong)));
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_FALSE(has_partial_file());
  }
}

TEST_F(WriteGguf, SaysThatTheDiskIsFullAndLeavesNothing) {
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_TRUE(write(DType::kQ8_0));
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {4096, before.rlim_max};
  auto opened = Checkpoint::open(folder_.path());
  ASSERT_TRUE(opened);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write_gguf(*opened, "tiny", DType::kQ8_0, folder_.file("full.gguf"), write_texts, {});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_EQ(status.code(), ErrorCode::kExhausted) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("after 4096 bytes"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("full.gguf")));
  EXPECT_FALSE(has_partial_file());
  EXPECT_EQ(OutputFile::create(folder_.file("no/such/folder")).status().code(), ErrorCode::kNotFound);
}

// In a process of its own, which a signal ends between the first bytes and commit().
TEST_F(WriteGguf, ASignalLeavesNoFileInTheMaking) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          remove_unfinished_file_on_signals();
          const auto out = OutputFile::create(path_);
          if (!out || !has_partial_file()) std::exit(3);
          std::raise(signal);
        },
        ::testing::KilledBySignal(signal), "");
    EXPECT_FALSE(has_partial_file()) << signal;
  }
}

TEST_F(WriteGguf, AFileInTheMakingIsSeenAndNothingElseThanAFileIsReplaced) {
  {
    const auto out = OutputFile::create(path_);
    ASSERT_TRUE(out);
    EXPECT_TRUE(has_partial_file());
  }
  EXPECT_FALSE(has_partial_file());
  std::filesystem::create_directory(path_);
  EXPECT_THAT(write(DType::kQ8_0).message(), HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace headwater::model
