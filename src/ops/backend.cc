#include "ops/backend.h"

#include "core/system.h"

#include <algorithm>

namespace headwater::ops {

PoolMemory Backend::pool_memory() const {
  const uint64_t free = memory_available_bytes();
  return {free, static_cast<uint64_t>(kHostPoolShare * static_cast<double>(free)), "a quarter of what is free"};
}
namespace {

class HostStopwatch final : public Stopwatch {
 public:
  HostStopwatch(Backend& backend, std::function<void()> work) : backend_(backend), work_(std::move(work)) {}

  Result<double> sample_us() override {
    const int64_t begin = clock_.now_ns();
    work_();
    HEADWATER_RETURN_IF_ERROR(backend_.finish());
    return static_cast<double>(clock_.now_ns() - begin) * 1e-3;
  }

 private:
  Backend& backend_;
  std::function<void()> work_;
  SystemClock clock_;
};

}  // namespace

Status check_weight_type(DType dtype) {
  if (is_weight_type(dtype)) return {};
  return error(ErrorCode::kUnsupported, "a weight of {}, which no product takes; use a file of another type",
               to_string(dtype));
}

Status Backend::upload(const Matrix& to, std::span<const float> from) {
  check(from.size() == uint64_t{to.rows} * to.columns, "upload: one value an element");
  for (uint64_t row = 0; row < to.rows; ++row) std::copy_n(&from[row * to.columns], to.columns, to.row(row));
  return {};
}

Status Backend::download(std::span<float> to, const Matrix& from) {
  check(to.size() == uint64_t{from.rows} * from.columns, "download: one value an element");
  for (uint64_t row = 0; row < from.rows; ++row) std::copy_n(from.row(row), from.columns, &to[row * from.columns]);
  return {};
}

Result<std::unique_ptr<Stopwatch>> Backend::create_stopwatch(std::function<void()> work, bool /*cold*/) {
  return std::unique_ptr<Stopwatch>(std::make_unique<HostStopwatch>(*this, std::move(work)));
}

}  // namespace headwater::ops
