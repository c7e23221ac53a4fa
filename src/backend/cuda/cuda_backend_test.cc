// The CUDA back end's own promises, beside what the conformance suite holds all back ends to. Skipped without a GPU.
#include "backend/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "backend/cuda/claim.h"
#include "backend/cuda/device.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/stopwatch.h"
#include "support/compare.h"
#include "support/forest.h"

namespace headwater::backend::cuda {
namespace {

using ::testing::HasSubstr;
using testing::make_tree;
using testing::SequencePages;

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<ops::Backend>> created = create({.invariant = is_invariant()});
    if (!created && created.status().code() == ErrorCode::kUnsupported) GTEST_SKIP() << created.status().message();
    ASSERT_TRUE(created) << created.status().message();
    backend_ = std::move(created).value();
  }
  virtual bool is_invariant() const { return false; }

  std::unique_ptr<ops::Backend> backend_;
};

// --------------------------------------------------------------------------------------------------------------- claim

// Two that do without cooperative launches could keep each other's blocks out for ever.
TEST_F(CudaTest, OneUserOfADeviceAtATimeIsAlone) {
  if (device_attribute(cudaDevAttrMpsEnabled) != 0) GTEST_SKIP() << "kernels of other processes run beside ours";
  EXPECT_FALSE(DeviceClaim::try_take().is_held()) << "the back end has it";
  backend_ = nullptr;
  DeviceClaim first = DeviceClaim::try_take();
  EXPECT_TRUE(first.is_held());
  EXPECT_FALSE(DeviceClaim::try_take().is_held());
  const DeviceClaim moved = std::move(first);
  EXPECT_FALSE(DeviceClaim::try_take().is_held()) << "moved, not given back";
}

// -------------------------------------------------------------------------------------------------------------- memory

TEST_F(CudaTest, MemoryBeyondTheDevicesIsRefusedWithItsSize) {
  const Result<DeviceBuffer> buffer = DeviceBuffer::create(size_t{1} << 46);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.status().code(), ErrorCode::kExhausted);
  EXPECT_THAT(buffer.status().message(), HasSubstr("70368744177664 bytes"));
  EXPECT_TRUE(DeviceBuffer::create(1024)) << "a refusal must not outlast itself";
}

TEST_F(CudaTest, PinnedMemoryIsZeroedAlsoWhereItWasUsedBefore) {
  constexpr size_t kBytes = 1 << 20;
  for (int i = 0; i < 3; ++i) {
    Result<Buffer> buffer = create_pinned(kBytes);
    ASSERT_TRUE(buffer) << buffer.status().message();
    ASSERT_EQ(buffer->size(), kBytes);
    const std::span<uint8_t> bytes = buffer->as<uint8_t>();
    ASSERT_TRUE(std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; }));
    std::ranges::fill(bytes, uint8_t{0xff});
  }
}

TEST_F(CudaTest, UploadAndDownloadReachTheColumnsOfASliceAlone) {
  constexpr uint32_t kRows = 5, kColumns = 64, kFirst = 16, kWidth = 24;
  Result<ops::Matrix> whole = backend_->allocate(kRows, kColumns);
  ASSERT_TRUE(whole) << whole.status().message();
  const ops::Matrix slice{whole->data + kFirst, kRows, kWidth, whole->stride};
  std::vector<float> values(kRows * kWidth), expected(kRows * kColumns, -1.0f);
  ASSERT_TRUE(backend_->upload(*whole, expected));
  for (uint32_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
    expected[i / kWidth * kColumns + kFirst + i % kWidth] = values[i];
  }
  ASSERT_TRUE(backend_->upload(slice, values));
  std::vector<float> got(kRows * kColumns), got_slice(kRows * kWidth);
  ASSERT_TRUE(backend_->download(got, *whole));
  ASSERT_TRUE(backend_->download(got_slice, slice));
  EXPECT_EQ(got, expected);
  EXPECT_EQ(got_slice, values);
}

TEST_F(CudaTest, AMatrixThatIsReleasedGivesItsMemoryBack) {
  const uint64_t before = backend_->pool_memory().free;
  const Result<ops::Matrix> matrix = backend_->allocate(1 << 14, 1 << 12);  // 256 MiB
  ASSERT_TRUE(matrix) << matrix.status().message();
  EXPECT_LT(backend_->pool_memory().free, before - (uint64_t{100} << 20));
  backend_->release(*matrix);
  EXPECT_GT(backend_->pool_memory().free, before - (uint64_t{100} << 20));
}

// Products take more shared memory than a kernel may have unless each device has been told.
TEST(CudaDevices, EachOfAProcessMultiplies) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) GTEST_SKIP() << devices << " devices";
  constexpr uint32_t kColumns = 256, kRows = 64;
  const std::vector<uint16_t> zeros(kRows * kColumns);
  for (int device = 0; device < devices; ++device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    const auto backend = *create({});
    const auto prepare = [&](uint32_t rows, uint32_t columns) {
      return *backend->prepare({reinterpret_cast<const std::byte*>(zeros.data()), DType::kBF16, rows, columns});
    };
    const auto in = prepare(kRows, kColumns), out = prepare(kColumns, kRows);
    ASSERT_TRUE(backend->reserve_scratch({8, 32, 1, 16, 8, 1}, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, 100));
    ASSERT_TRUE(backend->reserve_experts({1, kColumns, kRows, 1, 1}));
    const ops::Matrix x = *backend->allocate(1, kColumns), hidden = *backend->allocate(1, kRows);
    const ops::Matrix many = *backend->allocate(32, kColumns), many_hidden = *backend->allocate(32, kRows);
    const ops::Matrix router = *backend->allocate(1, 1), mixed = *backend->allocate(1, kColumns);
    const ops::Product product[] = {{in.get(), hidden}};
    backend->matmul({x, product});
    const ops::Product of_many[] = {{in.get(), many_hidden}};
    backend->matmul({many, of_many});
    EXPECT_TRUE(backend->finish()) << "matmul on device " << device;
    const ops::Expert expert[] = {{in.get(), in.get(), out.get()}};
    backend->mix_experts({x, router, expert, 1, true, ops::Activation::kSilu, mixed});
    const Status status = backend->finish();
    EXPECT_TRUE(status) << "experts on device " << device << ": " << status.message();
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(CudaTest, AStepBlockInOrdinaryMemoryIsRefused) {
  const Result<ops::StepBlock> block = ops::StepBlock::create({1, 1, 1, 32, 0, 1});
  ASSERT_TRUE(block) << block.status().message();
  const Result<ops::DeviceBatch> batch = backend_->begin_step(*block);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(batch.status().message(), HasSubstr("create_step_block"));
}

// -------------------------------------------------------------------------------------------------------- steps ahead

constexpr ops::StepLimits kFewRows{8, 8, 1, 16, 8, 1};
constexpr uint32_t kFewTokens = 100;  // of the vocabulary

TEST_F(CudaTest, APendingTokenIsWhatItsRowOfTheSampleBeforeChose) {
  constexpr uint32_t kColumns = 32, kRows = 6;
  ASSERT_TRUE(backend_->reserve_scratch(kFewRows, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, kFewTokens));
  std::vector<float> table(kFewTokens * kColumns);
  for (uint32_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i / kColumns);
  const auto weight =
      backend_->prepare({reinterpret_cast<const std::byte*>(table.data()), DType::kF32, kFewTokens, kColumns});
  ASSERT_TRUE(weight) << weight.status().message();
  // Row r of the logits chooses token 10 r + 3, but for row 2, which chooses none.
  std::vector<float> values(3 * kFewTokens);
  for (uint32_t row = 0; row < 3; ++row) values[row * kFewTokens + 10 * row + 3] = 9;
  values[2 * kFewTokens] = std::numeric_limits<float>::quiet_NaN();
  const ops::Matrix logits = *backend_->allocate(3, kFewTokens), out = *backend_->allocate(kRows, kColumns);
  ASSERT_TRUE(backend_->upload(logits, values));
  Result<ops::StepBlock> first = backend_->create_step_block(kFewRows);
  ASSERT_TRUE(first) << first.status().message();
  Result<ops::StepBlock> second = backend_->create_twin(*first);
  ASSERT_TRUE(second) << second.status().message();
  EXPECT_EQ(second->device_copy(), first->device_copy());

  first->layout(3, 3, 3, 0);
  ASSERT_TRUE(backend_->begin_step(*first));
  backend_->sample({logits, std::vector<ops::SampleRow>(3, ops::SampleRow{.temperature = 0})});
  second->layout(kRows, kRows, 0, 0);
  const TokenId ids[kRows] = {7,  ops::pending_token(1),   ops::pending_token(2), ops::pending_token(0),
                              99, ops::pending_token(1000)};
  std::ranges::copy(ids, second->token_ids().begin());
  const Result<ops::DeviceBatch> batch = backend_->begin_step(*second);
  ASSERT_TRUE(batch) << batch.status().message();
  backend_->embed({batch->token_ids, weight->get(), out});
  const Result<std::span<const ops::Sampled>> sampled = backend_->collect();
  ASSERT_TRUE(sampled) << sampled.status().message();
  ASSERT_EQ(sampled->size(), 3u);
  EXPECT_EQ((*sampled)[1].token, 13);
  EXPECT_EQ((*sampled)[2].error, ErrorCode::kInternal);
  std::vector<float> got(kRows * kColumns);
  ASSERT_TRUE(backend_->download(got, out));
  const float want[kRows] = {7, 13, 0, 3, 99, 0};
  for (uint32_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i / kColumns]) << i;
}

TEST_F(CudaTest, AStepOfAnotherEngineBeforeCollectIsRefused) {
  ASSERT_TRUE(backend_->reserve_scratch(kFewRows, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, kFewTokens));
  const ops::Matrix logits = *backend_->allocate(1, kFewTokens);
  Result<ops::StepBlock> one = backend_->create_step_block(kFewRows), other = backend_->create_step_block(kFewRows);
  ASSERT_TRUE(one && other);
  ASSERT_TRUE(backend_->begin_step(*one));
  backend_->sample({logits, std::vector<ops::SampleRow>(1)});
  const Result<ops::DeviceBatch> refused = backend_->begin_step(*other);
  EXPECT_EQ(refused.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("run_ahead"));
  EXPECT_EQ(backend_->reserve_scratch(kFewRows, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, kFewTokens).code(),
            ErrorCode::kInvalidArgument)
      << "the tokens lie in scratch";
  EXPECT_EQ(backend_->reserve_experts({8, 64, 64, 2, 1}).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(backend_->begin_step(*one)) << "the engine's own next step is taken";
  EXPECT_TRUE(backend_->collect());
  EXPECT_TRUE(backend_->begin_step(*other));
  EXPECT_TRUE(backend_->finish());
}

// A norm that is too wide fails where it is enqueued.
void enqueue_what_fails(ops::Backend& backend) {
  backend.add_norm({.residual = {nullptr, 1, 40000, 40000}, .weight = nullptr, .epsilon = 0, .out = {}});
}

TEST_F(CudaTest, AFailureThatNobodyCollectedComesBackFromTheNextStep) {
  const Result<ops::StepBlock> block = backend_->create_step_block(kFewRows);
  ASSERT_TRUE(backend_->begin_step(*block));
  enqueue_what_fails(*backend_);
  EXPECT_EQ(backend_->begin_step(*block).status().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(backend_->begin_step(*block)) << "it is said once";
  EXPECT_TRUE(backend_->finish());
}

// An error that the device does not recover from: whoever asks hears of it, and nobody waits for ever.
void run_into_an_illegal_address(ops::Backend& backend) {
  const Result<ops::StepBlock> block = backend.create_step_block(kFewRows);
  const bool began = backend.begin_step(*block).is_ok();
  const ops::Matrix nowhere{reinterpret_cast<float*>(uintptr_t{4096}), 8, 64, 64};
  backend.gate_mul({nowhere, nowhere, nowhere});
  const Status first = backend.finish(), next = backend.begin_step(*block).status(), last = backend.finish();
  std::fprintf(stderr, "%s; then: %s; then: %s\n", first.message().c_str(), next.message().c_str(),
               last.message().c_str());
  std::_Exit(began && !first && !next && !last ? 0 : 1);
}

using CudaDeathTest = CudaTest;
TEST_F(CudaDeathTest, AnIllegalAddressFailsThisStepAndAllLaterOnes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_into_an_illegal_address(*backend_), ::testing::ExitedWithCode(0), "illegal memory access");
}

TEST_F(CudaTest, ARecordingKeepsTheFailureOfWhatWasEnqueuedBefore) {
  enqueue_what_fails(*backend_);
  EXPECT_TRUE(backend_->record([] {}));
  EXPECT_EQ(backend_->finish().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(backend_->record([&] { enqueue_what_fails(*backend_); }).status().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(backend_->finish());
}

TEST_F(CudaTest, TheReadFloorGrowsWithTheBytes) {
  double previous_us = 0;
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{64} << 20, uint64_t{512} << 20}) {
    const Result<double> us = backend_->read_floor_us(bytes, 8192);
    ASSERT_TRUE(us) << us.status().message();
    EXPECT_GT(*us, previous_us) << bytes;
    if (bytes == 1 << 20) {
      EXPECT_LT(*us, 20);
    }
    previous_us = *us;
  }
}

// ------------------------------------------------------------------------------------------------------ recorded steps

constexpr uint32_t kPageSize = 32, kPages = 192, kTokensMax = 32, kSequencesMax = 24;
constexpr uint32_t kQueryHeads = 8;
constexpr ops::KvShape kShape{1, 2, 128, 128, kPageSize, kPages, DType::kBF16};

struct Step {
  const char* name;
  std::vector<SequencePages> sequences;
  attention::Path path;
};

std::vector<Step> steps() {
  const auto strangers = make_tree({.nodes = {3}, .tokens = {700}, .page_size = kPageSize, .first_page = 120});
  const auto members = make_tree({.nodes = {1, 20}, .tokens = {2048, 40}, .page_size = kPageSize});
  std::vector<SequencePages> both(members.begin(), members.begin() + 5);
  both[2].q_len = 4;
  both.insert(both.begin() + 1, strangers.begin(), strangers.begin() + 2);
  const std::vector<SequencePages> padding(4, SequencePages{.kv_len = 0, .q_len = 1});
  return {{"flat", strangers, attention::Path::kFlat},
          {"shared", members, attention::Path::kShared},
          {"mixed", both, attention::Path::kMixed},
          {"padding", padding, attention::Path::kFlat}};
}

struct Rows {
  std::vector<float> out, lse2;
};

// A pool of random keys and values, one step block that every step is written into, and matrices for its rows.
class RecordedSteps : public CudaTest, public ::testing::WithParamInterface<bool> {
 protected:
  bool is_invariant() const override { return GetParam(); }

  void SetUp() override {
    CudaTest::SetUp();
    if (backend_ == nullptr) return;
    const uint32_t columns = kQueryHeads * kShape.head_dim;
    const ops::StepLimits limits{kSequencesMax, kTokensMax, 80, kPageSize, 0, backend_->info().workers};
    ASSERT_TRUE(backend_->reserve_scratch(limits, kShape, kQueryHeads, 0));
    pool_ = *backend_->create_kv_pool(kShape);
    fill_pool();
    block_.emplace(*backend_->create_step_block(limits));
    q_ = random_matrix(kTokensMax, columns);
    out_ = *backend_->allocate(kTokensMax, columns);
    lse2_ = *backend_->allocate(kTokensMax, kQueryHeads);
    attention::PlanSettings settings;
    settings.sharing = attention::Sharing::kAlways;
    settings.invariant = backend_->info().invariant;
    settings.cut = backend_->info().cut;
    planner_.emplace(*attention::Planner::create(limits.plan_limits(), settings,
                                                 backend_->cost_model(kShape, kQueryHeads),
                                                 backend_->device_shape(kShape, kQueryHeads)));
  }

  // Plans the step and begins it, in the same block as the step before.
  void begin(const Step& step) {
    const testing::PageTableStorage storage(kPageSize, step.sequences);
    const attention::PageTable table = storage.view();
    const Result<const attention::Plan*> plan = planner_->plan(table);
    ASSERT_TRUE(plan) << plan.status().message();
    ASSERT_EQ((*plan)->outcome.path, step.path) << step.name;
    block_->layout(table.sequences(), table.tokens(), 0, static_cast<uint32_t>(table.page_ids.size()));
    std::ranges::copy(table.page_ids, block_->page_ids().begin());
    block_->set_plan(**plan);
    batch_ = *backend_->begin_step(*block_);
  }

  void attend() {
    const ops::AttentionParams params{q_, out_, lse2_.data, &batch_, pool_.get(), 0, kQueryHeads, {.scale = 0.088f}};
    backend_->attend(params);
    backend_->merge(params);
  }

  void forget_rows() {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(backend_->upload(out_, std::vector<float>(uint64_t{out_.rows} * out_.columns, kNan)));
    ASSERT_TRUE(backend_->upload(lse2_, std::vector<float>(uint64_t{lse2_.rows} * lse2_.columns, kNan)));
  }

  Rows rows() {
    const auto first_rows = [&](ops::Matrix matrix) {
      matrix.rows = batch_.tokens;
      std::vector<float> values(uint64_t{matrix.rows} * matrix.columns);
      EXPECT_TRUE(backend_->download(values, matrix));
      EXPECT_TRUE(std::ranges::none_of(values, [](float value) { return std::isnan(value); }))
          << "a row was not written";
      return values;
    };
    return {first_rows(out_), first_rows(lse2_)};
  }

  std::optional<ops::StepBlock> block_;
  std::unique_ptr<ops::KvPool> pool_;
  std::optional<attention::Planner> planner_;
  ops::Matrix q_, out_, lse2_;
  ops::DeviceBatch batch_;

 private:
  ops::Matrix random_matrix(uint32_t rows, uint32_t columns) {
    const ops::Matrix matrix = *backend_->allocate(rows, columns);
    std::vector<float> values(uint64_t{rows} * columns);
    std::ranges::generate(values, [&] { return random_.normal(); });
    EXPECT_TRUE(backend_->upload(matrix, values));
    return matrix;
  }

  void fill_pool() {
    constexpr uint32_t kSlots = kPages * kPageSize;
    Result<ops::StepBlock> block = backend_->create_step_block({1, kSlots, 1, kPageSize, 0, 1});
    ASSERT_TRUE(block) << block.status().message();
    block->layout(1, kSlots, 0, 0);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      block->positions()[slot] = 0;
      block->append_pages()[slot] = slot / kPageSize;
      block->append_slots()[slot] = slot % kPageSize;
    }
    const ops::Matrix q = *backend_->allocate(kSlots, kQueryHeads * kShape.head_dim);
    const ops::Matrix k = random_matrix(kSlots, kShape.kv_heads * kShape.head_dim);
    const ops::Matrix v = random_matrix(kSlots, kShape.kv_heads * kShape.head_dim);
    const Result<ops::DeviceBatch> batch = backend_->begin_step(*block);
    ASSERT_TRUE(batch) << batch.status().message();
    backend_->rope_append({q, k, v, &*batch, {ops::RopeStyle::kHalves, 0, nullptr}, pool_.get(), 0});
    ASSERT_TRUE(backend_->finish());
  }

  Random random_{1};
};

TEST_P(RecordedSteps, AreOneLaunchThatServesEveryLaterPlan) {
  const testing::Tolerance tolerance = testing::tolerance_for(kShape.dtype, 0);
  for (const Step& recorded : steps()) {
    ASSERT_NO_FATAL_FAILURE(begin(recorded));
    const Result<std::unique_ptr<ops::Stopwatch>> watch = backend_->create_stopwatch([&] { attend(); }, false);
    ASSERT_TRUE(watch) << watch.status().message();
    EXPECT_EQ(static_cast<GraphStopwatch&>(**watch).nodes_each(), 1u) << recorded.name;
    for (const Step& replayed : steps()) {
      const std::string what = fmt::format("recorded {}, replayed {}", recorded.name, replayed.name);
      ASSERT_NO_FATAL_FAILURE(forget_rows());
      ASSERT_NO_FATAL_FAILURE(begin(replayed));
      ASSERT_TRUE((*watch)->sample_us()) << what;
      ASSERT_TRUE(backend_->finish()) << what;
      const Rows got = rows();
      ASSERT_NO_FATAL_FAILURE(forget_rows());
      attend();
      ASSERT_TRUE(backend_->finish()) << what;
      const Rows want = rows();
      EXPECT_TRUE(testing::near(got.out, want.out, tolerance, 1, what));
      EXPECT_TRUE(testing::near(got.lse2, want.lse2, tolerance, 1, what));
      if (is_invariant()) {
        EXPECT_TRUE(testing::same_bits(got.out, want.out, 1, what));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, RecordedSteps, ::testing::Bool(), [](const ::testing::TestParamInfo<bool>& mode) {
  return mode.param ? "invariant" : "adaptive";
});

}  // namespace
}  // namespace headwater::backend::cuda
