"""Writes the golden files of the model families: one a family, one line a case; tests/golden/README.md describes them.

    python tools/golden/make_family_golden.py tests/golden/families [family ...]

Needs numpy; a few seconds. A family is a module of tools/golden/families with CASES: name -> (class, config.json).
"""

import importlib
import json
import os
import pathlib
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "families"
TOKENS = 64
STEPS = 200000  # logits are written as multiples of the largest one's size / STEPS


def case_record(name, family, config):
    model = family(config)
    tokens = np.random.default_rng(20).integers(0, config["vocab_size"], TOKENS)
    logits = model.forward(tokens)
    assert np.isfinite(logits).all()
    unit = float(np.abs(logits).max()) / STEPS
    return {
        "name": name,
        "config": config,
        "tensors": [recipe.record(key) for key, recipe in model.recipes.items()],
        "gguf": {
            "architecture": model.architecture,
            "metadata": model.gguf_metadata(),
            "tensors": model.gguf_tensors(),
        },
        "tokens": tokens.tolist(),
        "logit_unit": unit,
        "logits": np.rint(logits / unit).astype(int).ravel().tolist(),
    }


def main(folder, *families):
    modules = {path.stem: importlib.import_module(f"families.{path.stem}") for path in sorted(FOLDER.glob("*.py"))}
    for family in families or [name for name, module in modules.items() if hasattr(module, "CASES")]:
        cases = modules[family].CASES
        lines = [json.dumps(case_record(name, *case), separators=(",", ":")) for name, case in cases.items()]
        path = pathlib.Path(folder) / f"{family}.jsonl"
        path.write_text("".join(line + "\n" for line in lines))
        print(f"{path}: {len(lines)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
