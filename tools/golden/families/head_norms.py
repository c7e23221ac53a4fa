"""Families that normalise each head of q and k before it is rotated: put HeadNorms before the family they vary."""


class HeadNorms:
    head_norm_names = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}

    def declare_attention(self, p):
        super().declare_attention(p)
        self.declare_norm(p + "q_norm.weight", self.head_dim)
        self.declare_norm(p + "k_norm.weight", self.head_dim)

    def before_rotation(self, p, q, k):
        return self.norm(q, p + "q_norm.weight"), self.norm(k, p + "k_norm.weight")
