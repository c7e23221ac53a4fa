#include "model/write_gguf.h"

#include "model/f8_weight.h"
#include "model/gguf_metadata.h"
#include "model/gguf_names.h"
#include "model/output_file.h"

namespace headwater::model {
namespace {

struct Planned {
  const Tensor* source;
  GgufName name;
  DType dtype;
  uint64_t offset;  // in the data
};

uint32_t file_type(DType dtype) {  // general.file_type: what most of the file is. Source: llama.h of llama.cpp
  switch (dtype) {
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    default:
      return 32;  // BF16
  }
}

DType written_type(const Tensor& tensor, DType wanted) {
  if (tensor.shape.size() < 2) return DType::kF32;
  return tensor.columns() % block_elements(wanted) == 0 ? wanted : DType::kBF16;
}

bool is_scale_of_f8(const SafetensorsFolder& folder, std::string_view name) {
  for (const std::string_view suffix : {"_scale", "_scale_inv"}) {
    if (!name.ends_with(suffix)) continue;
    const Tensor* weight = folder.find(name.substr(0, name.size() - suffix.size()));
    if (weight != nullptr && weight->dtype == DType::kF8E4M3) return true;
  }
  return false;
}

Result<std::vector<Planned>> plan_tensors(const SafetensorsFolder& folder, const FolderShape& shape, DType dtype,
                                          GgufHeader& header) {
  std::vector<Planned> planned;
  for (const Tensor& tensor : folder.tensors()) {
    if (is_left_out(tensor.name) || is_scale_of_f8(folder, tensor.name)) continue;
    const std::optional<GgufName> name = gguf_name(shape.architecture, tensor.name);
    const bool is_readable = is_weight_type(tensor.dtype) || tensor.dtype == DType::kF8E4M3;
    if (!name || !is_readable || tensor.shape.empty() || tensor.shape.size() > 2 || tensor.data.empty()) {
      return error(ErrorCode::kUnsupported, "tensor '{}' of {} has no place in a GGUF file of '{}'", tensor.name,
                   to_string(tensor.dtype), shape.architecture);
    }
    if (name->heads != GgufName::Heads::kNone && tensor.rows() % shape.head_dim != 0) {
      return error(ErrorCode::kCorrupt, "tensor '{}' has {} rows, which are not whole heads of {}", tensor.name,
                   tensor.rows(), shape.head_dim);
    }
    const DType type = written_type(tensor, dtype);
    const uint64_t bytes = tensor.rows() * row_bytes(type, tensor.columns());
    planned.push_back({&tensor, *name, type, header.tensor(name->name, *gguf_number(type), tensor.shape, bytes)});
  }
  return planned;
}

// The tensor's rows in GGUF's order, encoded, a row at a time.
Status write_tensor(const SafetensorsFolder& folder, const Planned& planned, uint64_t head_dim, OutputFile& out) {
  const Tensor& tensor = *planned.source;
  std::vector<uint16_t> decoded;  // of F8_E4M3
  DType dtype = tensor.dtype;
  const std::byte* data = tensor.data.data();
  if (dtype == DType::kF8E4M3) {
    HEADWATER_ASSIGN_OR_RETURN(decoded, f8_weight_as_bf16(folder, tensor));
    dtype = DType::kBF16;
    data = reinterpret_cast<const std::byte*>(decoded.data());
  }
  std::vector<float> values(tensor.columns());
  std::vector<std::byte> bytes(row_bytes(planned.dtype, tensor.columns()));
  for (uint64_t row = 0; row < tensor.rows(); ++row) {
    const uint64_t from = planned.name.heads == GgufName::Heads::kNone ? row : row_of_pair(row, head_dim);
    dequantize_row(dtype, data + from * row_bytes(dtype, tensor.columns()), tensor.columns(), values.data());
    if (Status status = quantize_row(planned.dtype, values, bytes.data()); !status) {
      return error(status.code(), "tensor '{}', row {}: {}", tensor.name, from, status.message());
    }
    HEADWATER_RETURN_IF_ERROR(out.write(bytes));
  }
  return {};
}

Status write_header(const SafetensorsFolder& folder, FolderShape& shape, std::string_view name, DType dtype,
                    GgufHeader& header) {
  HEADWATER_ASSIGN_OR_RETURN(shape, write_config(folder.config(), name, header));
  header.value("general.file_type", file_type(dtype)).value("general.quantization_version", uint32_t{2});
  const Tensor* embedding = folder.find("model.embed_tokens.weight");
  if (embedding == nullptr) return error(ErrorCode::kCorrupt, "tensor 'model.embed_tokens.weight' is missing");
  TokenizerTexts texts;
  HEADWATER_ASSIGN_OR_RETURN(texts.tokenizer, folder.text("tokenizer.json"));
  HEADWATER_ASSIGN_OR_RETURN(texts.config, folder.text_or_nothing("tokenizer_config.json"));
  HEADWATER_ASSIGN_OR_RETURN(texts.chat_template, folder.text_or_nothing("chat_template.jinja"));
  return write_tokenizer(texts, embedding->rows(), header);
}

}  // namespace

Status write_gguf(const SafetensorsFolder& folder, std::string_view name, DType dtype, const std::string& path,
                  const std::function<void(double)>& progress) {
  GgufHeader header;
  FolderShape shape;
  HEADWATER_RETURN_IF_ERROR(write_header(folder, shape, name, dtype, header));
  const auto factors = std::as_bytes(std::span(shape.rope_factors));
  if (!factors.empty()) {
    const uint64_t count[] = {shape.rope_factors.size()};
    header.tensor("rope_freqs.weight", *gguf_number(DType::kF32), count, factors.size());
  }
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Planned> planned, plan_tensors(folder, shape, dtype, header));
  const std::vector<std::byte> begin = header.bytes();
  HEADWATER_ASSIGN_OR_RETURN(OutputFile out, OutputFile::create(path));
  HEADWATER_RETURN_IF_ERROR(out.write(begin));
  HEADWATER_RETURN_IF_ERROR(out.write(factors));
  for (const Planned& tensor : planned) {
    HEADWATER_RETURN_IF_ERROR(out.pad_to(begin.size() + tensor.offset));
    HEADWATER_RETURN_IF_ERROR(write_tensor(folder, tensor, shape.head_dim, out));
    if (progress)
      progress(static_cast<double>(out.position()) / static_cast<double>(begin.size() + header.data_bytes()));
  }
  return out.commit();
}

}  // namespace headwater::model
