#include "backend/cpu/products.h"

#include <algorithm>

namespace headwater::backend::cpu {
namespace {

constexpr uint32_t kTasksPerThread = 8;       // the last task to finish then costs little
constexpr uint64_t kQuantizeAlone = 1 << 14;  // values that another core's cache gets and gives back no sooner

const PackedWeight& packed(const ops::Product& product) {
  return static_cast<const PackedWeight&>(*product.weight);
}

uint32_t pieces(const ops::Product& product, uint32_t groups_per_task) {
  return (packed(product).groups() + groups_per_task - 1) / groups_per_task;
}

StepKernels::Products kernel(const StepKernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kernels.f32;
    case DType::kF16:
      return kernels.f16;
    case DType::kBF16:
      return kernels.bf16;
    case DType::kQ8_0:
      return kernels.q8_0;
    case DType::kQ4_1:
      return kernels.q4_1;
    case DType::kQ4_0:
      return kernels.q4_0;
    default:
      break;
  }
  check(false, "a weight without a kernel");
  return nullptr;
}

uint64_t panel_bytes(uint64_t rows, uint64_t columns) {
  return (rows + kPanelRows - 1) / kPanelRows * (columns / kBlockColumns) * sizeof(PanelBlock);
}

constexpr uint64_t kScratchValuesBytes = kBlockColumns * kGroupFeatures;  // of a block
constexpr uint64_t kScratchScalesBytes = 2 * kGroupFeatures * sizeof(float);

}  // namespace

Status Products::reserve(uint32_t rows, uint64_t columns, uint64_t decoded_columns) {
  const uint64_t bytes = panel_bytes(rows, columns);
  if (bytes > panels_.size()) {
    HEADWATER_ASSIGN_OR_RETURN(panels_, Buffer::create(bytes));
  }
  scratch_blocks_ = std::max(scratch_blocks_, columns / kBlockColumns);
  const uint64_t worker_bytes = std::max(scratch_blocks_ * (kScratchValuesBytes + kScratchScalesBytes),
                                         decoded_columns * kGroupFeatures * sizeof(float));
  if (worker_bytes > scratch_worker_bytes_) {
    HEADWATER_ASSIGN_OR_RETURN(scratch_, Buffer::create(pool_.size() * worker_bytes));
    scratch_worker_bytes_ = worker_bytes;
  }
  return {};
}

void Products::run(const ops::MatmulParams& params) {
  uint32_t groups = 0;
  bool any_quantized = false;
  for (const ops::Product& product : params.products) {
    const PackedWeight& weight = packed(product);
    check(weight.columns() == params.x.columns, "matmul: x and the weight differ in columns");
    check(product.out.rows >= params.x.rows && product.out.columns == weight.rows(), "matmul: out has another shape");
    groups += weight.groups();
    any_quantized |= weight.is_quantized();
  }
  if (params.x.rows == 0) return;
  if (any_quantized) quantize(params.x);

  const uint32_t tasks_wanted = pool_.size() * kTasksPerThread;
  const uint32_t groups_per_task = (groups + tasks_wanted - 1) / tasks_wanted;
  uint32_t tasks = 0;
  for (const ops::Product& product : params.products) tasks += pieces(product, groups_per_task);
  pool_.run(tasks, [&](uint32_t task, uint32_t worker) {
    size_t p = 0;
    for (; task >= pieces(params.products[p], groups_per_task); ++p)
      task -= pieces(params.products[p], groups_per_task);
    const uint32_t begin = task * groups_per_task;
    const uint32_t end = std::min(begin + groups_per_task, packed(params.products[p]).groups());
    run_groups(params.x, params.products[p], begin, end, worker);
  });
}

void Products::quantize(const ops::Matrix& x) {
  check(panel_bytes(x.rows, x.columns) <= panels_.size(),
        "matmul: more rows or columns than reserve_scratch() was told");
  check(x.columns / kBlockColumns <= scratch_blocks_, "matmul: more columns than reserve_scratch() was told");
  PanelBlock* panels = panels_.as<PanelBlock>().data();
  const uint64_t blocks = x.columns / kBlockColumns;
  const auto quantize_panel = [&](uint32_t panel, uint32_t) {
    for (uint32_t row = panel * kPanelRows; row < std::min(x.rows, (panel + 1) * kPanelRows); ++row) {
      kernels_.quantize(x.row(row), x.columns, row % kPanelRows, panels + panel * blocks);
    }
  };
  const uint32_t panel_count = (x.rows + kPanelRows - 1) / kPanelRows;
  if (uint64_t{x.rows} * x.columns <= kQuantizeAlone) {
    for (uint32_t panel = 0; panel < panel_count; ++panel) quantize_panel(panel, 0);
  } else {
    pool_.run(panel_count, quantize_panel);
  }
}

void Products::run_groups(const ops::Matrix& x, const ops::Product& product, uint32_t begin, uint32_t end,
                          uint32_t worker) const {
  const PackedWeight& weight = packed(product);
  std::byte* scratch = scratch_.data() + worker * scratch_worker_bytes_;
  if (weight.has_kernel()) {
    ProductTask task = task_of(x, product, begin, end);
    task.scratch = {reinterpret_cast<int8_t*>(scratch),
                    reinterpret_cast<float*>(scratch + scratch_blocks_ * kScratchValuesBytes)};
    return kernel(kernels_, weight.dtype())(task);
  }
  check(x.columns * kGroupFeatures * sizeof(float) <= scratch_worker_bytes_,
        "matmul: more columns than reserve_scratch() was told");
  for (uint32_t group = begin; group < end; ++group) {
    weight.decode_group(group, reinterpret_cast<float*>(scratch));
    ProductTask task = task_of(x, product, group, group + 1);
    task.weight = reinterpret_cast<const uint8_t*>(scratch);
    kernels_.f32(task);
  }
}

ProductTask Products::task_of(const ops::Matrix& x, const ops::Product& product, uint32_t begin, uint32_t end) const {
  const PackedWeight& weight = packed(product);
  const uint32_t feature = begin * kGroupFeatures;
  ProductTask task;
  task.weight = weight.group(begin);
  task.group_bytes = weight.group_bytes();
  task.features = std::min(end * kGroupFeatures, static_cast<uint32_t>(weight.rows())) - feature;
  task.columns = x.columns;
  task.rows = x.rows;
  task.panels = panels_.as<const PanelBlock>().data();
  task.x = x.data;
  task.x_stride = x.stride;
  task.bias = product.bias == nullptr ? nullptr : product.bias + feature;
  task.scratch = {};
  task.out = product.out.data + feature;
  task.out_stride = product.out.stride;
  return task;
}

}  // namespace headwater::backend::cpu
