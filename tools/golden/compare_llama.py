"""Compares the golden files with llama.cpp, through the low-level bindings of llama-cpp-python.

    python tools/golden/compare_llama.py models/SmolLM2-135M-Instruct.Q4_1.gguf tests/golden
    python tools/golden/compare_llama.py models/SmolLM2-135M-Instruct.Q4_1.gguf tests/golden --dequantised-to SCRATCH.gguf

As it is, llama.cpp also rounds activations to 8 bits, so logits differ by tenths. With --dequantised-to it runs on a
copy of the model whose weights are F32 (540 MB, written to SCRATCH.gguf): then only float32 rounding is left.
"""

import argparse
import ctypes
import json
import pathlib

import gguf
import llama_cpp.llama_cpp as llama
import numpy as np

from make_golden import HEADER, STEP_FORMAT, STRIDE, VOCABULARY

CONTEXT = 2048
FLASH_ATTENTION_OFF = 0


def write_dequantised(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Peer:
    def __init__(self, path):
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama.llama_model_load_from_file(str(path).encode(), params)
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # F32
        params.flash_attn_type = FLASH_ATTENTION_OFF
        self.context = llama.llama_init_from_model(self.model, params)
        self.batch = llama.llama_batch_init(CONTEXT, 0, 1)

    def tokenize(self, text):
        data = text.encode()
        tokens = (ctypes.c_int32 * len(data))()
        vocabulary = llama.llama_model_get_vocab(self.model)
        count = llama.llama_tokenize(vocabulary, data, len(data), tokens, len(data), False, True)
        return list(tokens[:count])

    def forget(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def logits(self, tokens, start):
        """Logits after each of `tokens`, whose first has position `start`: [tokens, vocabulary]."""
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = start + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = 1
        status = llama.llama_decode(self.context, self.batch)
        assert status == 0, f"llama_decode: {status}"
        rows = llama.llama_get_logits(self.context)
        flat = ctypes.cast(rows, ctypes.POINTER(ctypes.c_float * (len(tokens) * VOCABULARY))).contents
        return np.frombuffer(flat, np.float32).reshape(len(tokens), VOCABULARY).astype(np.float64)

    def greedy(self, prompt, steps):
        self.forget()
        tokens, unseen = list(prompt), list(prompt)
        for _ in range(steps):
            row = self.logits(unseen, len(tokens) - len(unseen))[-1]
            unseen = [int(row.argmax())]
            tokens += unseen
        return tokens[len(prompt) :]


def logsumexp(logits):
    top = logits.max(axis=-1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))


def compare_prompts(peer, folder):
    lines = (folder / "smollm2_golden.jsonl").read_text(encoding="utf-8").splitlines()
    steps = np.frombuffer((folder / "smollm2_golden_logits.bin").read_bytes()[HEADER.size :], STEP_FORMAT)
    same_ids = same_texts = same_steps = total = 0
    margin_lost, differences = 0.0, []
    for index, golden in enumerate(map(json.loads, lines)):
        prompt, continuation = golden["tokens"], golden["continuation"]
        same_ids += peer.tokenize(golden["text"]) == prompt
        same_texts += peer.greedy(prompt, len(continuation)) == continuation
        peer.forget()
        rows = peer.logits((prompt + continuation)[:-1], 0)[len(prompt) - 1 :]
        agrees = rows.argmax(axis=-1) == continuation
        margin_lost = max([margin_lost] + [m for m, ok in zip(golden["margins"], agrees) if not ok])
        expected = steps[index * len(continuation) : (index + 1) * len(continuation)]
        differences.append(rows[:, ::STRIDE] - expected["strided"])
        differences.append(np.take_along_axis(rows, expected["top_ids"].astype(int), -1) - expected["top_logits"])
        differences.append((logsumexp(rows) - expected["logsumexp"])[:, None])
        same_steps += int(agrees.sum())
        total += len(continuation)
    print(f"token ids equal: {same_ids} of {len(lines)}")
    print(f"greedy texts equal: {same_texts} of {len(lines)}")
    print(f"teacher-forced arg max equal: {same_steps} of {total}; largest margin lost {margin_lost}")
    every = np.concatenate([d.ravel() for d in differences])
    print(f"logits: root mean square difference {np.sqrt(np.mean(every**2)):.2e}, largest {np.abs(every).max():.2e}")


def compare_perplexity(peer, folder):
    golden = json.loads((folder / "smollm2_perplexity.json").read_text(encoding="utf-8"))
    text = (folder / "perplexity_text.txt").read_text(encoding="utf-8")
    print(f"token ids of the text equal: {peer.tokenize(text) == golden['tokens']}")
    peer.forget()
    rows = peer.logits(golden["tokens"], 0)[:-1]
    losses = logsumexp(rows) - rows[np.arange(len(rows)), golden["tokens"][1:]]
    print(f"perplexity: {np.exp(losses.mean()):.6f}, golden {golden['perplexity']:.6f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dequantised-to", type=pathlib.Path)
    options = parser.parse_args()
    if options.dequantised_to:
        write_dequantised(options.model, options.dequantised_to)
    peer = Peer(options.dequantised_to or options.model)
    compare_perplexity(peer, options.folder)
    compare_prompts(peer, options.folder)


if __name__ == "__main__":
    main()
