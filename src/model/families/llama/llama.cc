#include "model/families/llama/llama.h"

namespace headwater::model::llama {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h, {.pairs_in_gguf = true});
  h.expect_flag({"", "attention_bias"}, false);
  h.expect_flag({"", "mlp_bias"}, false);
  read_windows(h, blueprint, h.integer(kWindow, 0, 1 << 24, 0), 0);
  return blueprint;
}

}  // namespace headwater::model::llama
