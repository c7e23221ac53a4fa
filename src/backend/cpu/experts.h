// Feed-forward blocks of experts: tokens are grouped by expert, so that each expert's weights are read once a step.
//
//   router logits ─▶ choices [T][used] ─▶ places: the pairs (token, choice) by expert, then by token
//
//   expert e   gather its tokens' x ─▶ gate, up ─▶ activation ─▶ down, into the places of e
//   token t    out = sum over its choices, in their order, of weight * down[place]
//
// Products of a row have the same bits beside any other rows (products.h), and the sum has one order: the bits of a token
// depend on the token alone.
#pragma once

#include <vector>

#include "backend/cpu/products.h"
#include "backend/cpu/rowwise.h"
#include "ops/experts.h"

namespace headwater::backend::cpu {

class Experts {
 public:
  Experts(Products& products, Rowwise& rowwise) : products_(products), rowwise_(rowwise) {}

  // Scratch up to this shape; keeps the largest of every call. The products' scratch is reserved with the weights.
  Status reserve(const ops::ExpertsShape& shape);

  // As ops::Backend describes it. Nothing allocates.
  void run(const ops::MixExpertsParams& params);

 private:
  void choose(const ops::MixExpertsParams& params);
  void group(const ops::MixExpertsParams& params);
  void run_expert(const ops::MixExpertsParams& params, uint32_t index);
  void add_up(const ops::MixExpertsParams& params);

  Products& products_;
  Rowwise& rowwise_;

  std::vector<ops::ExpertChoice> choices_;  // [T][used]
  std::vector<uint32_t> places_;            // [T][used] of each choice
  std::vector<uint32_t> tokens_;            // [T * used] by place
  std::vector<uint32_t> place_begin_;       // [experts + 1] the first place of each expert
  Buffer x_;                                // [T, k] of one expert
  Buffer gate_up_;                          // [T, 2 n] of one expert
  Buffer down_;                             // [T * used, k] by place
};

}  // namespace headwater::backend::cpu
