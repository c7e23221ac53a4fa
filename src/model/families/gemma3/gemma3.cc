#include "model/families/gemma3/gemma3.h"

#include "model/families/gemma2/gemma2.h"

namespace headwater::model::gemma3 {

Blueprint read(Hyperparameters& h) {
  Blueprint blueprint = gemma2::read_gemma(h, 62);
  blueprint.q_norm = {"attn_q_norm", "self_attn.q_norm"};
  blueprint.k_norm = {"attn_k_norm", "self_attn.k_norm"};
  h.expect_number({"attn_logit_softcapping", "attn_logit_softcapping"}, 0);
  blueprint.logit_softcap =
      static_cast<float>(h.number({"final_logit_softcapping", "final_logit_softcapping"}, 0, 1e6, 0.0));
  h.expect_flag({"", "use_bidirectional_attention"}, false);
  const double base = h.number({"rope.freq_base_swa", "rope_local_base_freq"}, 1.001, 1e12, 10000.0);
  blueprint.ropes.push_back(plain_rope(static_cast<float>(base), blueprint.shape.rope_dims));
  read_windows(h, blueprint, h.integer(kWindow, 0, 1 << 24, 0), 6);
  for (LayerPlan& layer : blueprint.layers) layer.rope = blueprint.shape.windows[layer.window] != 0 ? 1 : 0;
  return blueprint;
}

}  // namespace headwater::model::gemma3
