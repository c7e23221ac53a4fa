#include "model/write_gguf.h"

#include <algorithm>
#include <cmath>

#include "model/families/family.h"
#include "model/gguf_numbers.h"
#include "model/output_file.h"
#include "model/transformer/weights.h"

namespace headwater::model {
namespace {

uint32_t file_type(DType dtype) {  // general.file_type: what most of the file is. Source: llama.h of llama.cpp
  switch (dtype) {
    case DType::kF32:
      return 0;
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

// A matrix as the folder holds it.
struct Stored : ops::Weight {
  explicit Stored(const ops::WeightView& view) : Weight(view.rows, view.columns, view.dtype), data(view.data) {}
  const std::byte* row(uint64_t index) const { return data + index * row_bytes(dtype(), columns()); }
  const std::byte* data;
};

Result<WeightPtr> store(const ops::WeightView& view) {
  return WeightPtr(std::make_unique<Stored>(view));
}

DType written_type(const Slot& slot, DType wanted) {
  if (!slot.vectors.empty()) return DType::kF32;
  if (slot.dtype) return *slot.dtype;
  return slot.columns % block_elements(wanted) == 0 ? wanted : DType::kBF16;
}

// Columns, rows, and the parts where there are several.
std::vector<uint64_t> shape_of(const Slot& slot) {
  if (!slot.vectors.empty() && slot.rows == 1) return {slot.columns};
  if (slot.matrices.size() < 2) return {slot.columns, slot.rows};
  return {slot.columns, slot.rows / slot.matrices.size(), slot.matrices.size()};
}

// The folder's row that becomes `row` of GGUF: element i of a head stands beside i + half there, and beside i + 1 here.
// `turned` elements of a head are pairs.
uint64_t row_before(uint64_t row, uint64_t head_dim, uint64_t turned) {
  if (head_dim == 0 || row % head_dim >= turned) return row;
  const uint64_t at = row % head_dim;
  return row - at + at / 2 + at % 2 * (turned / 2);
}

// Writes what the slots of a folder loaded as the slots of GGUF say.
class SlotWriter {
 public:
  SlotWriter(DType wanted, uint32_t turned, OutputFile& out) : wanted_(wanted), turned_(turned), out_(out) {}

  Status write(const Slot& slot) {
    for (const std::vector<float>* values : slot.vectors) {
      const auto wrong = std::ranges::find_if(*values, [](float value) { return !std::isfinite(value); });
      if (wrong != values->end()) {
        return error(ErrorCode::kInvalidArgument, "tensor {}: value {} is {}; values are finite", slot.name,
                     wrong - values->begin(), *wrong);
      }
      std::vector<float> moved(values->size());
      for (uint64_t i = 0; i < moved.size(); ++i) moved[i] = (*values)[row_before(i, slot.head_dim, turned_)];
      HEADWATER_RETURN_IF_ERROR(out_.write(std::as_bytes(std::span(moved))));
    }
    for (const WeightPtr* matrix : slot.matrices) {
      HEADWATER_RETURN_IF_ERROR(write_matrix(slot, static_cast<const Stored&>(**matrix)));
    }
    return {};
  }

 private:
  Status write_matrix(const Slot& slot, const Stored& matrix) {
    const DType dtype = written_type(slot, wanted_);
    values_.resize(matrix.columns());
    bytes_.resize(row_bytes(dtype, matrix.columns()));
    for (uint64_t row = 0; row < matrix.rows(); ++row) {
      const uint64_t from = row_before(row, slot.head_dim, turned_);
      if (block_elements(dtype) > 1 && matrix.dtype() == dtype) {  // blocks stay as they are
        HEADWATER_RETURN_IF_ERROR(out_.write({matrix.row(from), bytes_.size()}));
        continue;
      }
      dequantize_row(matrix.dtype(), matrix.row(from), matrix.columns(), values_.data());
      if (Status status = quantize_row(dtype, values_, bytes_.data()); !status) {
        return error(status.code(), "tensor {}, row {} of the folder's: {}", slot.name, from, status.message());
      }
      HEADWATER_RETURN_IF_ERROR(out_.write(bytes_));
    }
    return {};
  }

  DType wanted_;
  uint32_t turned_;
  OutputFile& out_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

std::span<const Slot> group_of(const std::vector<Slot>& slots, uint32_t group) {
  return {std::ranges::lower_bound(slots, group, {}, &Slot::group),
          std::ranges::upper_bound(slots, group, {}, &Slot::group)};
}

Status write_header(const SafetensorsFolder& folder, const Blueprint& blueprint, std::string_view name, DType dtype,
                    const TokenizerWriter& write_tokenizer, GgufHeader& header) {
  header.value("general.name", std::string(name)).value("general.file_type", file_type(dtype));
  header.value("general.quantization_version", uint32_t{2});
  HEADWATER_ASSIGN_OR_RETURN(const TokenizerTexts texts, tokenizer_texts(folder));
  return write_tokenizer(texts, blueprint.shape.vocabulary, header);
}

}  // namespace

Status write_gguf(const Checkpoint& checkpoint, std::string_view name, DType dtype, const std::string& path,
                  const TokenizerWriter& write_tokenizer, const std::function<void(double)>& progress) {
  if (checkpoint.folder() == nullptr) {
    return error(ErrorCode::kUnsupported, "a GGUF file is not written again as another: give a folder of safetensors");
  }
  HEADWATER_ASSIGN_OR_RETURN(Hyperparameters h, Hyperparameters::open(checkpoint));
  HEADWATER_ASSIGN_OR_RETURN(Blueprint blueprint, read_blueprint(h));
  const std::string_view architecture =
      std::ranges::find(families(), std::string_view(blueprint.shape.family), &Family::name)->gguf;
  HEADWATER_RETURN_IF_ERROR(check_numbers(architecture, h.in_gguf(), blueprint));

  Weights weights;  // the places that both formats' slots name
  const std::vector<Slot> from = bind_slots(checkpoint.tensors().size(), blueprint, weights);
  HEADWATER_RETURN_IF_ERROR(check_slots(checkpoint, from, blueprint, h.tensors_read()));
  blueprint.gguf = true;
  const std::vector<Slot> to = bind_slots(checkpoint.tensors().size(), blueprint, weights);

  GgufHeader header;
  const std::vector<std::byte> numbers = write_numbers(architecture, h.in_gguf(), header);
  HEADWATER_RETURN_IF_ERROR(write_header(*checkpoint.folder(), blueprint, name, dtype, write_tokenizer, header));
  std::vector<uint64_t> offsets;
  for (const Slot& slot : to) {
    const DType type = written_type(slot, dtype);
    const uint64_t bytes = slot.rows * row_bytes(type, slot.columns);
    offsets.push_back(header.tensor(slot.name, *gguf_number(type), shape_of(slot), bytes));
  }
  const std::vector<std::byte> begin = header.bytes();
  HEADWATER_ASSIGN_OR_RETURN(OutputFile out, OutputFile::create(path));
  HEADWATER_RETURN_IF_ERROR(out.write(begin));
  HEADWATER_RETURN_IF_ERROR(out.write(numbers));
  SlotWriter writer(dtype, blueprint.shape.rope_dims, out);
  auto offset = offsets.begin();
  for (uint32_t group = 0; group <= blueprint.shape.layers; ++group) {
    HEADWATER_RETURN_IF_ERROR(load_slots(checkpoint, group_of(from, group), store, &weights.converted));
    for (const Slot& slot : group_of(to, group)) {
      HEADWATER_RETURN_IF_ERROR(out.pad_to(begin.size() + *offset++));
      HEADWATER_RETURN_IF_ERROR(writer.write(slot));
      if (!progress) continue;
      progress(static_cast<double>(out.position()) / static_cast<double>(begin.size() + header.data_bytes()));
    }
    weights.converted.clear();  // so that no more than a layer is in memory
  }
  return out.commit();
}

}  // namespace headwater::model
