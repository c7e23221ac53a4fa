// The C interface as a program with its own tensors uses it. What needs a GPU is skipped without one.
#include "backend/cuda/c_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "backend/cuda/runtime.h"
#include "support/compare.h"
#include "support/naive_attention.h"

namespace headwater::backend::cuda {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kQueryHeads = 8, kKvHeads = 2, kHeadDim = 128, kPageSize = 32, kPages = 20, kSequences = 4;
constexpr uint32_t kBFloat16 = 0, kFloat16 = 1;
const float kScale = 1 / std::sqrt(static_cast<float>(kHeadDim));

headwater_attention_config config_of(uint32_t dtype) {
  return {.q_heads = kQueryHeads,
          .kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .page_size = kPageSize,
          .dtype = dtype,
          .sequences_max = kSequences,
          .tokens_max = kSequences,
          .pages_per_sequence_max = 8,
          .sharing = 1,
          .invariant = 1};
}

struct Destroy {
  void operator()(headwater_attention* attention) const { headwater_attention_destroy(attention); }
};
using Handle = std::unique_ptr<headwater_attention, Destroy>;

struct Layout {  // of a page
  const char* name;
  uint64_t slot_stride, head_stride;
};
constexpr Layout kSlotsThenHeads{"NHD", kKvHeads* kHeadDim, kHeadDim};
constexpr Layout kHeadsThenSlots{"HND", kHeadDim, kPageSize* kHeadDim};
constexpr uint64_t kPageElements = uint64_t{kPageSize} * kKvHeads * kHeadDim;

// Random values of one 16-bit type.
class Values {
 public:
  Values(uint32_t dtype, size_t count, uint64_t seed) : dtype_(dtype) {
    Random random(seed);
    while (bits_.size() < count) {
      const float value = random.normal();
      bits_.push_back(dtype == kBFloat16 ? f32_to_bf16(value) : f32_to_f16(value));
    }
    wide_ = widened(bits_);
  }
  std::vector<float> widened(const std::vector<uint16_t>& bits) const {
    std::vector<float> wide;
    for (const uint16_t x : bits) wide.push_back(dtype_ == kBFloat16 ? bf16_to_f32(x) : f16_to_f32(x));
    return wide;
  }
  std::vector<float>& wide() { return wide_; }
  const std::vector<uint16_t>& bits() const { return bits_; }

  // These as [page][kv head][slot][column], laid out otherwise.
  std::vector<uint16_t> pages(const Layout& layout) const {
    std::vector<uint16_t> laid_out(bits_.size());
    for (size_t i = 0; i < bits_.size(); ++i) {
      const uint64_t column = i % kHeadDim, slot = i / kHeadDim % kPageSize;
      const uint64_t head = i / kHeadDim / kPageSize % kKvHeads, page = i / kPageElements;
      laid_out[page * kPageElements + slot * layout.slot_stride + head * layout.head_stride + column] = bits_[i];
    }
    return laid_out;
  }

 private:
  uint32_t dtype_;
  std::vector<uint16_t> bits_;
  std::vector<float> wide_;
};

DeviceBuffer on_device(const std::vector<uint16_t>& values) {
  Result<DeviceBuffer> buffer = DeviceBuffer::create(values.size() * sizeof(uint16_t));
  check(buffer.is_ok(), buffer.status().message().c_str());
  check(cudaMemcpy(buffer->data(), values.data(), buffer->size(), cudaMemcpyHostToDevice) == cudaSuccess, "upload");
  return std::move(buffer).value();
}

// Four sequences of 100, 33, 256 and 1 keys, one query token each.
struct Table {
  std::vector<uint32_t> page_indptr{0, 4, 6, 14, 15};
  std::vector<uint32_t> page_ids{7, 3, 19, 0, 1, 11, 2, 4, 6, 8, 10, 12, 14, 16, 5};
  std::vector<uint32_t> kv_len{100, 33, 256, 1};
  std::vector<uint32_t> q_indptr{0, 1, 2, 3, 4};

  attention::PageTable view() const { return {kPageSize, page_indptr, page_ids, kv_len, q_indptr, {}}; }
};

class CInterface : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<DeviceTraits> traits = device_traits();
    if (!traits) GTEST_SKIP() << traits.status().message();
  }

  static Handle create(uint32_t dtype) {
    const headwater_attention_config config = config_of(dtype);
    headwater_attention* created = nullptr;
    EXPECT_EQ(headwater_attention_create(&config, &created), 0) << headwater_attention_error();
    return Handle(created);
  }

  static int plan(const Handle& attention, const Table& table, uint32_t sequences,
                  headwater_attention_outcome* outcome = nullptr) {
    return headwater_attention_plan(attention.get(), sequences, table.page_indptr.data(), table.page_ids.data(),
                                    table.kv_len.data(), table.q_indptr.data(), nullptr, outcome);
  }

  // The output of the planned step, as bits.
  static std::vector<uint16_t> run(const Handle& attention, const Values& q, const Values& k, const Values& v,
                                   const Layout& layout) {
    const DeviceBuffer q_at = on_device(q.bits()), k_at = on_device(k.pages(layout)), v_at = on_device(v.pages(layout));
    std::vector<uint16_t> out(q.bits().size(), 0xffff);  // NaN
    const DeviceBuffer out_at = on_device(out);
    const headwater_attention_kv kv{k_at.data(),   v_at.data(),        kPages,
                                    kPageElements, layout.slot_stride, layout.head_stride};
    EXPECT_EQ(headwater_attention_run(attention.get(), &kv, q_at.data(), out_at.data(), nullptr, kScale, nullptr), 0)
        << headwater_attention_error();
    EXPECT_EQ(cudaMemcpy(out.data(), out_at.data(), out_at.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }
};

TEST(CInterfaceArguments, AnImpossibleConfigurationIsRefusedInWords) {
  const auto refuses = [](auto change) {
    headwater_attention_config config = config_of(kBFloat16);
    change(config);
    headwater_attention* created = nullptr;
    EXPECT_EQ(headwater_attention_create(&config, &created), -1);
    EXPECT_EQ(created, nullptr);
    EXPECT_THAT(headwater_attention_error(), HasSubstr("heads must divide, dtype is 0 or 1, sharing 0 to 2"));
  };
  refuses([](headwater_attention_config& config) { config.q_heads = 7; });
  refuses([](headwater_attention_config& config) { config.kv_heads = 0; });
  refuses([](headwater_attention_config& config) { config.dtype = 2; });
  refuses([](headwater_attention_config& config) { config.sharing = 3; });
}

TEST_F(CInterface, PagesOfBothLayoutsGiveTheSameRightOutput) {
  for (const uint32_t dtype : {kBFloat16, kFloat16}) {
    Values q(dtype, kSequences * kQueryHeads * kHeadDim, 1);
    Values k(dtype, kPages * kPageElements, 2), v(dtype, kPages * kPageElements, 3);
    const Table table;
    const Handle attention = create(dtype);
    headwater_attention_outcome outcome{};
    ASSERT_EQ(plan(attention, table, kSequences, &outcome), 0) << headwater_attention_error();
    EXPECT_EQ(outcome.path, 0u);
    EXPECT_EQ(outcome.bytes_read, outcome.bytes_flat);
    EXPECT_GE(outcome.items, kSequences);

    const std::vector<uint16_t> first = run(attention, q, k, v, kSlotsThenHeads);
    EXPECT_EQ(run(attention, q, k, v, kHeadsThenSlots), first) << "dtype " << dtype;

    const auto row = [](Values& values) {
      return [&values](PageId page, uint32_t slot, uint32_t head) {
        return &values.wide()[page * kPageElements + (uint64_t{head} * kPageSize + slot) * kHeadDim];
      };
    };
    const testing::NaiveAttention naive{kKvHeads, kQueryHeads,       kHeadDim, kHeadDim,
                                        0,        {.scale = kScale}, row(k),   row(v)};
    constexpr uint32_t kColumns = kQueryHeads * kHeadDim;
    const auto want = naive.run(table.view(), {q.wide().data(), kSequences, kColumns, kColumns});
    // The output is rounded as well.
    const testing::Tolerance tolerance = testing::tolerance_for(DType::kBF16, 0).scaled(1.5);
    EXPECT_TRUE(testing::near(q.widened(first), want.v, tolerance, 1, fmt::format("dtype {}", dtype)));
  }
}

TEST_F(CInterface, APlanBeyondItsLimitsIsRefusedAndTheHandleGoesOn) {
  const Values q(kBFloat16, kSequences * kQueryHeads * kHeadDim, 1);
  const Values k(kBFloat16, kPages * kPageElements, 2), v(kBFloat16, kPages * kPageElements, 3);
  const Table table;
  const Handle attention = create(kBFloat16);
  ASSERT_EQ(plan(attention, table, kSequences), 0) << headwater_attention_error();
  const std::vector<uint16_t> before = run(attention, q, k, v, kSlotsThenHeads);

  Table larger;
  larger.page_indptr.push_back(larger.page_indptr.back() + 1);
  larger.page_ids.push_back(9);
  larger.kv_len.push_back(1);
  larger.q_indptr.push_back(5);
  EXPECT_EQ(plan(attention, larger, kSequences + 1), -1);
  EXPECT_THAT(headwater_attention_error(), HasSubstr("5 sequences in one step; the limit is 4"));

  ASSERT_EQ(plan(attention, table, kSequences), 0) << headwater_attention_error();
  EXPECT_EQ(run(attention, q, k, v, kSlotsThenHeads), before);
}

}  // namespace
}  // namespace headwater::backend::cuda
