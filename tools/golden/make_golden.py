"""Writes the golden files of the default model; tests/golden/README.md describes them.

    python tools/golden/make_golden.py models/SmolLM2-135M-Instruct.Q4_1.gguf tests/golden

Needs numpy, gguf, tokenizers and jinja2, about 3 GB of memory, and a few minutes of one core.
"""

import json
import os
import pathlib
import struct
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gguf
import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from make_tokenizer_json import from_gguf
from llama_numpy import Llama, logsumexp
from prompts import all_prompts

STEPS = 32
STRIDE = 192
TOP = 4
VOCABULARY = 49152
HEADER = struct.Struct("<8s5I")  # magic, prompts, STEPS, VOCABULARY, STRIDE, TOP
MAGIC = b"HWGOLD01"
STEP_FORMAT = np.dtype(
    [
        ("strided", "<f4", VOCABULARY // STRIDE),
        ("top_ids", "<i4", TOP),
        ("top_logits", "<f4", TOP),
        ("logsumexp", "<f4"),
    ]
)


def greedy(model, prompt):
    """[STEPS] next tokens and the logits [STEPS, vocabulary] that chose them. Goes on after an end-of-text token."""
    cache = model.new_cache()
    tokens, rows = list(prompt), []
    for _ in range(STEPS):
        unseen = tokens[cache[0][0].shape[0] :]
        rows.append(model.logits(model.forward(np.array(unseen), cache)[-1]))
        tokens.append(int(rows[-1].argmax()))
    return tokens[len(prompt) :], np.array(rows)


def golden_steps(logits):
    """[STEPS, vocabulary] logits as records of STEP_FORMAT."""
    top = np.argsort(-logits, axis=-1, kind="stable")[:, :TOP]
    steps = np.empty(len(logits), STEP_FORMAT)
    steps["strided"] = logits[:, ::STRIDE]
    steps["top_ids"] = top
    steps["top_logits"] = np.take_along_axis(logits, top, axis=-1)
    steps["logsumexp"] = logsumexp(logits)
    return steps


def write_prompts(model, tokenizer, prompts, folder):
    lines, steps = [], []
    for name, text in prompts.items():
        tokens = tokenizer.encode(text).ids
        continuation, logits = greedy(model, tokens)
        best = np.sort(logits, axis=-1)[:, -2:]
        margins = [round(float(margin), 4) for margin in best[:, 1] - best[:, 0]]
        lines.append({"name": name, "text": text, "tokens": tokens, "continuation": continuation, "margins": margins})
        steps.append(golden_steps(logits).tobytes())
        print(f"{name}: least margin {min(margins)}: {tokenizer.decode(continuation)!r}")
    header = HEADER.pack(MAGIC, len(prompts), STEPS, VOCABULARY, STRIDE, TOP)
    (folder / "smollm2_golden_logits.bin").write_bytes(header + b"".join(steps))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / "smollm2_golden.jsonl").write_text(text, encoding="utf-8")


def write_perplexity(model, tokenizer, folder):
    tokens = tokenizer.encode((folder / "perplexity_text.txt").read_text(encoding="utf-8")).ids
    hidden = model.forward(np.array(tokens), model.new_cache())
    losses = []
    for start in range(0, len(tokens) - 1, 128):
        targets = tokens[start + 1 : start + 129]
        logits = model.logits(hidden[start : start + len(targets)])
        losses += list(logsumexp(logits) - logits[np.arange(len(targets)), targets])
    mean = float(np.mean(losses))
    result = {"tokens": tokens, "scored": len(losses), "mean_negative_log_likelihood": mean, "perplexity": float(np.exp(mean))}
    (folder / "smollm2_perplexity.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(f"perplexity {result['perplexity']:.6f} over {len(losses)} of {len(tokens)} tokens")


def main(model_path, folder):
    reader = gguf.GGUFReader(model_path)
    tokenizer = from_gguf(model_path)
    model = Llama(reader)
    assert model.output.shape[0] == VOCABULARY
    folder = pathlib.Path(folder)
    write_perplexity(model, tokenizer, folder)
    write_prompts(model, tokenizer, all_prompts(reader.fields["tokenizer.chat_template"].contents()), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
