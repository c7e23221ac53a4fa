"""What `headwater quantize` makes of the families' golden cases, as the package gguf reads it.

    python tools/golden/check_quantized.py build/release/headwater

Needs numpy and gguf 0.19.0; a few seconds. Every tensor has the values that the package itself makes of the case's, to the bit.
"""

import importlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "families"
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
}


def write_folder(model, folder):
    header, data = {}, b""
    for name, values in model.weights.items():
        array = values if values.dtype == np.uint8 else values.astype(np.float32)
        dtype = "U8" if array.dtype == np.uint8 else "F32"
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps(model.config))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))


def made(recipe, model, module):
    """The values of a tensor of GGUF, as tests/golden/README.md describes its recipe."""
    if "values" in recipe:
        return np.array(recipe["values"], np.float32)
    if "mxfp4" in recipe:
        values = module.from_mxfp4(*(model.weights[name] for name in recipe["mxfp4"])).astype(np.float32)
    else:
        values = np.stack([model.weights[name].astype(np.float32) for name in recipe["from"]])
        values = values[0] if len(values) == 1 else values
    if "pairs_of_heads" in recipe:
        pairs = values.reshape(recipe["pairs_of_heads"], 2, -1, *values.shape[1:])
        values = pairs.swapaxes(1, 2).reshape(values.shape)
    if "rows" in recipe:
        first, step = recipe["rows"]
        values = values[:, first::step]
    return values + np.float32(recipe.get("add", 0))


def check(name, module, model, program, kind):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_folder(model, folder)
        file = folder / "out.gguf"
        subprocess.run([program, "quantize", folder, file, "--type", kind], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([program, "inspect", file], check=True, stdout=subprocess.DEVNULL)
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
        recipes = {recipe["name"]: recipe for recipe in model.gguf_tensors()}
        assert recipes.keys() == tensors.keys(), (name, recipes.keys() ^ tensors.keys())
        for key, recipe in recipes.items():
            got, expected = tensors[key], made(recipe, model, module)
            if got.tensor_type.name not in ("F32", "MXFP4"):
                blocks = gguf.quants.quantize(expected, got.tensor_type)
                expected = gguf.dequantize(blocks, got.tensor_type)
            values = gguf.dequantize(got.data, got.tensor_type).reshape(expected.shape)
            close = 2e-7 if key == "rope_freqs.weight" else 0  # which the case has with 8 digits
            assert np.allclose(values, expected, rtol=close, atol=0), (name, key)
    print(f"{name} as {kind}: {len(tensors)} tensors")


def main(program):
    for path in sorted(FOLDER.glob("*.py")):
        module = importlib.import_module(f"families.{path.stem}")
        for name, (family, config) in getattr(module, "CASES", {}).items():
            for kind in ("bf16", "q8_0", "q4_0", "q4_1"):
                check(f"{path.stem} {name}", module, family(config), program, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
