#include "model/families/qwen2/qwen2.h"

namespace headwater::model::qwen2 {

void read_qwen_windows(Hyperparameters& h, Blueprint& blueprint) {
  h.expect_flag({"", "use_sliding_window"}, false);  // then the window of the file means nothing
  h.ignore(kWindow);
  h.ignore({"", "max_window_layers"});
  read_windows(h, blueprint, 0, 0);
}

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = read_common(h);
  blueprint.separate_projections(/*attention_bias=*/true);
  read_qwen_windows(h, blueprint);
  return blueprint;
}

}  // namespace headwater::model::qwen2
