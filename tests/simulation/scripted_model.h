// A model whose next token is a hash of every key it can see through the plan, so that any page mix-up, missed copy,
// stale page or wrong plan gives another token. The text it must give is a plain function of the request alone.
//
//   pool      a 64-bit record of (position, token) for every page slot; a page that starts anew is poisoned first
//   forward   writes the batch's records, walks the items and the merge table of each plan as a back end would, and adds up
//             what each token sees; a token that does not see exactly the keys of its window fails the step
//   logits    pseudo-random numbers in [0, 4) of these sums
#pragma once

#include <memory>
#include <vector>

#include "engine/request.h"
#include "model/decoder.h"

namespace headwater::testing {

uint64_t key_record(uint32_t position, TokenId token);
void logits_of(uint64_t keys_seen, std::span<float> logits);

// What the engine must emit for one choice of a request if nobody stops it. windows: of the model.
std::vector<TokenId> expected_tokens(const engine::Request& request, uint32_t choice, uint32_t vocabulary,
                                     const std::vector<uint32_t>& windows = {0});

// What can be broken on purpose, to see that it shows.
enum class Fault : uint8_t {
  kNone,
  kDropCopies,   // copy_pages() does nothing
  kDropAppends,  // the last token of a page is not written
  kWrongPage,    // items of several tokens read the page behind the right one
  kDropPartial,  // the merge table is read without its last slot
};

class ScriptedPool final : public ops::KvPool {
 public:
  explicit ScriptedPool(const ops::KvShape& shape);
  std::span<uint64_t> page(PageId page);  // [page_size]

 private:
  std::vector<uint64_t> records_;  // [pages][page_size]
};

// The part of a Backend that an engine calls itself; the operations of a decoder are not there.
class ScriptedBackend : public ops::Backend {
 public:
  explicit ScriptedBackend(uint32_t vocabulary, uint32_t workers = 4, Fault fault = Fault::kNone);
  Fault fault() const { return fault_; }

  const ops::BackendInfo& info() const override { return info_; }
  attention::CostModel cost_model(const ops::KvShape&, uint32_t) const override { return {}; }
  Result<std::unique_ptr<ops::KvPool>> create_kv_pool(const ops::KvShape& shape) override;
  Status reserve_scratch(const ops::StepLimits& limits, const ops::KvShape&, uint32_t, uint32_t) override;
  Result<ops::DeviceBatch> begin_step(const ops::StepBlock& block) override { return block.host_batch(); }
  void copy_pages(ops::KvPool& pool, std::span<const PageId> from, std::span<const PageId> to) override;
  void sample(const ops::SampleParams& params) override;
  Result<std::span<const ops::Sampled>> collect() override;
  Status finish() override { return {}; }
  uint64_t take_kv_bytes_read() override { return 0; }

  Result<std::unique_ptr<ops::Weight>> prepare(const ops::WeightView&) override;
  Result<ops::Matrix> allocate(uint32_t, uint32_t) override;
  void release(const ops::Matrix&) override {}
  void embed(const ops::EmbedParams&) override;
  void add_norm(const ops::AddNormParams&) override;
  void matmul(const ops::MatmulParams&) override;
  void rope_append(const ops::RopeAppendParams&) override;
  void attend(const ops::AttentionParams&) override;
  void merge(const ops::AttentionParams&) override;
  void gate_mul(const ops::GateMulParams&) override;
  void mix_experts(const ops::MixExpertsParams&) override;
  void cap_logits(const ops::CapLogitsParams&) override;
  void gather_rows(const ops::GatherRowsParams&) override;

 protected:
  ops::BackendInfo info_;

 private:
  Fault fault_;
  ops::SampleScratch scratch_;
  std::vector<ops::Sampled> sampled_;  // [logits_max]
  uint32_t rows_ = 0;
  Status sample_status_;
};

class ScriptedDecoder : public model::Decoder {
 public:
  ScriptedDecoder(ScriptedBackend& backend, uint32_t vocabulary, uint32_t context_max,
                  std::vector<uint32_t> windows = {0});

  const model::ModelShape& shape() const override { return shape_; }
  Status prepare(const ops::StepLimits& limits, const ops::KvShape& kv) override;
  Result<ops::Matrix> forward(const ops::DeviceBatch& batch, ops::KvPool& pool) override;

  void fail_next(uint32_t forwards) { failures_ = forwards; }  // those many calls return an error
  uint64_t tokens_computed() const { return tokens_computed_; }
  uint64_t kv_bytes(uint32_t pages, uint32_t page_size) const {  // of a pool in f32
    return shape_.kv_shape(page_size, pages, DType::kF32).bytes();
  }

 private:
  struct Seen {
    uint64_t sum;
    uint64_t keys;
    Seen& operator+=(const Seen& other) {
      sum += other.sum;
      keys += other.keys;
      return *this;
    }
  };
  void append(const ops::DeviceBatch& batch, ScriptedPool& pool) const;
  void attend_item(const ops::DeviceBatch& batch, const attention::Plan& plan, const attention::WorkItem& item,
                   ScriptedPool& pool);
  Status merge(const ops::DeviceBatch& batch, const attention::Plan& plan);

  ScriptedBackend& backend_;
  model::ModelShape shape_;
  std::vector<uint64_t> sums_;  // running sums over the keys of one item
  std::vector<Seen> partials_;
  std::vector<Seen> seen_;          // [tokens_max] by batch token, through one plan
  std::vector<uint64_t> all_seen_;  // [tokens_max] by batch token, through all plans
  std::vector<float> logits_;       // [logits_max][vocabulary]
  uint32_t failures_ = 0;
  uint64_t tokens_computed_ = 0;
};

}  // namespace headwater::testing
