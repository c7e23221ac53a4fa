// The frequencies of rotary position embedding, and how files stretch them beyond the context that was trained first:
//
//   none      b^(-2i / d) for pair i of d / 2, b the base
//   linear    all divided by `factor`                                                        (arXiv 2306.15595)
//   llama3    long waves divided by `factor`, short ones kept, between them blended          (config.json of Llama 3.1)
//   yarn      the same by the turns within the original context; cosine and sine scaled      (arXiv 2309.00071)
//   longrope  each divided by its own number of one of two lists; cosine and sine scaled     (arXiv 2402.13753)
//
// Of longrope's lists the short one serves contexts up to the original length, the long one longer ones. Keys in the pool were
// turned by one of them, so it is chosen once, by the longest context that is served, not by each request's length.
// GGUF files hold llama3 as ready factors (rope_freqs.weight) and longrope's as rope_factors_short.weight and
// rope_factors_long.weight.
#pragma once

#include <string>
#include <vector>

#include "model/transformer/hyperparameters.h"
#include "ops/backend.h"

namespace headwater::model {

struct RopeTable {
  uint32_t dims = 0;                    // rotated elements of a head
  float scale = 1.0f;                   // of cosine and sine
  std::vector<float> frequencies;       // [dims / 2]
  std::vector<float> long_frequencies;  // [dims / 2]; empty: `frequencies` serve every context
  uint32_t original_context = 0;        // beyond it long_frequencies count
  std::string description;              // "yarn x 4"; empty: not stretched

  const std::vector<float>& for_context(uint64_t tokens) const {
    return long_frequencies.empty() || tokens <= original_context ? frequencies : long_frequencies;
  }
};

// What the file says, for heads whose first `dims` elements turn. context_max: the file's context length.
// yarn_truncate: whether yarn's bounds are rounded outward where the file does not say.
RopeTable read_rope(Hyperparameters& h, float base, uint32_t dims, uint32_t context_max, bool yarn_truncate = true);

// llama3: what each of the dims / 2 frequencies is divided by.
struct Llama3Scaling {
  double factor, low_freq_factor, high_freq_factor;  // low below high
  double original_context;
};
std::vector<double> llama3_factors(const Llama3Scaling& scaling, double base, uint32_t dims);

// Without any scaling.
RopeTable plain_rope(float base, uint32_t dims);

}  // namespace headwater::model
