// A model of a real shape without its weights: for measuring speed where the file cannot be had.
#pragma once

#include <string>

#include "model/checkpoint.h"

namespace headwater::model {

// Of a folder, only config.json is needed. Every tensor that the family takes is there: matrices of random blocks of `dtype`
// (BF16, Q8_0, Q4_0 or Q4_1; BF16 where rows are not whole blocks), deviation about 0.02, vectors of ones. They share one piece
// of memory. Without a tokenizer.json text is bytes.
Result<Checkpoint> open_with_random_weights(const std::string& folder, DType dtype);

}  // namespace headwater::model
