#include "bench/timed_backend.h"

namespace headwater::bench {
namespace {

constexpr int kReplays = 20;  // of each kind, timed together

// Good until the kinds of steps are asked for: then its step is recorded once more.
class DatedRecording final : public ops::Recording {
 public:
  DatedRecording(std::unique_ptr<ops::Recording> recording, const uint64_t& date)
      : recording_(std::move(recording)), date_(date), made_at_(date) {}
  bool replay() override { return date_ == made_at_ && recording_->replay(); }

 private:
  std::unique_ptr<ops::Recording> recording_;
  const uint64_t& date_;
  const uint64_t made_at_;
};

}  // namespace

void TimedBackend::record_kinds() {
  records_kinds_ = true;
  recorded_ = {};
  ++recordings_date_;
}

Result<std::unique_ptr<ops::Recording>> TimedBackend::record(const std::function<void()>& work) {
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<ops::Recording> whole, backend_->record(work));
  if (records_kinds_) HEADWATER_RETURN_IF_ERROR(record_each_kind(work));
  return std::unique_ptr<ops::Recording>(std::make_unique<DatedRecording>(std::move(whole), recordings_date_));
}

Status TimedBackend::record_each_kind(const std::function<void()>& work) {
  const WorkTotals before = totals_;
  recorded_ = {};
  called_ = {};
  alone_ = kNothing;
  work();  // counts what a step calls
  recorded_.work = totals_.since(before);
  Status status;
  for (size_t place = 0; place < called_.size() && status; ++place) {
    if (!called_[place]) continue;
    alone_ = place;
    Result<std::unique_ptr<ops::Recording>> recording = backend_->record(work);
    status = recording.status();
    if (status) recorded_.kinds.emplace_back(place, std::move(recording).value());
  }
  alone_ = kEverything;
  totals_ = before;
  return status;
}

Result<WorkTotals> TimedBackend::time_kinds() {
  if (recorded_.kinds.empty()) {
    return error(ErrorCode::kInternal, "no step was recorded since its kinds were asked for; decode one first");
  }
  WorkTotals work = recorded_.work;
  for (auto& [place, recording] : recorded_.kinds) {
    int64_t begin = 0;
    for (int i = -1; i < kReplays; ++i) {
      if (!recording->replay()) return error(ErrorCode::kInternal, "scratch has moved since the step was recorded");
      if (i >= 0) continue;
      HEADWATER_RETURN_IF_ERROR(backend_->finish());  // the first run warms up
      begin = clock_.now_ns();
    }
    HEADWATER_RETURN_IF_ERROR(backend_->finish());
    work.at(place).nanoseconds = (clock_.now_ns() - begin) / kReplays;
  }
  return work;
}

}  // namespace headwater::bench
