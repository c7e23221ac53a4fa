// Runs a model without the engine: one sequence at a time, teacher-forced in chunks, through the same parts that the
// engine uses (step block, planner, KV pool, decoder).
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/plan.h"
#include "model/model.h"
#include "ops/ops.h"

namespace headwater::testing {

class ModelDriver {
 public:
  struct Settings {
    uint32_t tokens_max = 256;  // of a sequence
    uint32_t chunk = 128;       // tokens computed in one step
    DType kv_dtype = DType::kBF16;
  };
  // logits: [vocabulary], of the token that follows `position`; valid during the call.
  using Visit = std::function<void(uint32_t position, std::span<const float> logits)>;

  // model and backend outlive the driver.
  static Result<ModelDriver> create(model::Model& model, ops::Backend& backend, const Settings& settings) {
    const model::ModelShape& shape = model.shape();
    const uint32_t pages = (settings.tokens_max + kPageSize - 1) / kPageSize;
    ops::StepLimits limits{1, settings.chunk, pages, kPageSize, settings.chunk};
    limits.plans = static_cast<uint32_t>(shape.windows.size());
    limits.workers = backend.info().workers;
    const ops::KvShape kv = shape.kv_shape(kPageSize, pages, settings.kv_dtype);
    std::vector<attention::Planner> planners;
    for (const uint32_t window : shape.windows) {
      HEADWATER_ASSIGN_OR_RETURN(
          auto planner, attention::Planner::create(
                            limits.plan_limits(),
                            {.invariant = backend.info().invariant, .cut = backend.info().cut, .window = window},
                            backend.cost_model(kv, shape.q_heads), backend.device_shape(kv, shape.q_heads)));
      planners.push_back(std::move(planner));
    }
    HEADWATER_ASSIGN_OR_RETURN(auto block, backend.create_step_block(limits));
    HEADWATER_ASSIGN_OR_RETURN(auto decoder, model.create_decoder());
    HEADWATER_RETURN_IF_ERROR(decoder->prepare(limits, kv));
    HEADWATER_ASSIGN_OR_RETURN(auto pool, backend.create_kv_pool(kv));
    return ModelDriver(settings, backend, std::move(planners), std::move(block), std::move(decoder), std::move(pool));
  }

  // Computes `tokens` from position 0 on and visits the logits of the positions from `first` on, in order.
  Status run(std::span<const TokenId> tokens, uint32_t first, const Visit& visit) {
    const auto count = static_cast<uint32_t>(tokens.size());
    check(count <= settings_.tokens_max, "the sequence is longer than the driver's tokens_max");
    for (uint32_t begin = 0; begin < count; begin += settings_.chunk) {
      const uint32_t end = std::min(count, begin + settings_.chunk);
      const uint32_t wanted = std::clamp(first, begin, end);
      HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix logits, step(tokens.first(end), begin, wanted));
      std::vector<float> rows(uint64_t{logits.rows} * logits.columns);
      if (!rows.empty()) HEADWATER_RETURN_IF_ERROR(backend_->download(rows, logits));
      for (uint32_t position = wanted; position < end; ++position) {
        visit(position, std::span(rows).subspan(uint64_t{position - wanted} * logits.columns, logits.columns));
      }
    }
    return {};
  }

 private:
  static constexpr uint32_t kPageSize = 32;

  ModelDriver(const Settings& settings, ops::Backend& backend, std::vector<attention::Planner> planners,
              ops::StepBlock block, std::unique_ptr<model::Decoder> decoder, std::unique_ptr<ops::KvPool> pool)
      : settings_(settings),
        backend_(&backend),
        planners_(std::move(planners)),
        block_(std::move(block)),
        decoder_(std::move(decoder)),
        pool_(std::move(pool)) {}

  // The pages of the sequence lie in the pool from the last to the first: ids and indices differ.
  PageId page_of(uint32_t position) const { return pool_->shape().pages - 1 - position / kPageSize; }

  // One step over tokens[begin ..]; logits of the positions from `wanted` on.
  Result<ops::Matrix> step(std::span<const TokenId> tokens, uint32_t begin, uint32_t wanted) {
    const auto end = static_cast<uint32_t>(tokens.size());
    const uint32_t pages = (end + kPageSize - 1) / kPageSize;
    block_.layout(1, end - begin, end - wanted, pages);
    for (uint32_t position = begin; position < end; ++position) {
      block_.token_ids()[position - begin] = tokens[position];
      block_.positions()[position - begin] = position;
      block_.append_pages()[position - begin] = page_of(position);
      block_.append_slots()[position - begin] = position % kPageSize;
    }
    for (uint32_t position = wanted; position < end; ++position) {
      block_.logits_tokens()[position - wanted] = position - begin;
    }
    for (uint32_t page = 0; page < pages; ++page) block_.page_ids()[page] = page_of(page * kPageSize);
    block_.page_indptr()[0] = block_.q_indptr()[0] = 0;
    block_.page_indptr()[1] = pages;
    block_.q_indptr()[1] = end - begin;
    block_.kv_len()[0] = end;
    block_.versions()[0] = 0;
    for (uint32_t i = 0; i < planners_.size(); ++i) {
      HEADWATER_ASSIGN_OR_RETURN(const attention::Plan* plan, planners_[i].plan(block_.page_table()));
      block_.set_plan(*plan, i);
    }
    HEADWATER_ASSIGN_OR_RETURN(const ops::DeviceBatch batch, backend_->begin_step(block_));
    HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix logits, decoder_->forward(batch, *pool_));
    HEADWATER_RETURN_IF_ERROR(backend_->finish());
    return logits;
  }

  Settings settings_;
  ops::Backend* backend_;
  std::vector<attention::Planner> planners_;
  ops::StepBlock block_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<ops::KvPool> pool_;
};

}  // namespace headwater::testing
