#!/usr/bin/env python3
"""Writes a tokenizer.json (Hugging Face format) for a GGUF file with a byte-level BPE vocabulary.

Clients and load generators that count tokens with the Python package `tokenizers` can read it; the ids are those that
Headwater computes. Needs: pip install gguf==0.19.0 tokenizers==0.23.3 (the versions this was checked with).
"""

import argparse
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def split_then_bytes(expression):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(expression), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def gpt2():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


# tokenizer.ggml.pre -> the pre-tokeniser, and whether a word that is a token skips the merges
PRE_TOKENIZERS = {
    "default": (gpt2, False),
    "gpt-2": (gpt2, False),
    "llama-bpe": (lambda: split_then_bytes(LLAMA3), True),
    "qwen2": (lambda: split_then_bytes(QWEN2), False),
    "smollm": (lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2()]), False),
}


def build(tokens, types, merges, pre):
    """A tokenizers.Tokenizer from the lists of a GGUF file's metadata."""
    if pre not in PRE_TOKENIZERS:
        raise ValueError(f'the pre-tokeniser "{pre}" is not known; known are {", ".join(PRE_TOKENIZERS)}')
    make_pre_tokenizer, ignore_merges = PRE_TOKENIZERS[pre]
    pairs = []
    for merge in merges:
        space = merge.index(" ", 1)
        pairs.append((merge[:space], merge[space + 1 :]))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = make_pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, types):
        if kind == CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif kind == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, special=False, normalized=False)])
    return tokenizer


def from_gguf(path):
    fields = GGUFReader(path).fields

    def value(key, otherwise=None):
        return fields[key].contents() if key in fields else otherwise

    model = value("tokenizer.ggml.model")
    if model != "gpt2":
        raise ValueError(f'tokenizer.ggml.model is "{model}"; only "gpt2" (byte-level BPE) is read')
    tokens = value("tokenizer.ggml.tokens")
    types = value("tokenizer.ggml.token_type", [1] * len(tokens))
    return build(tokens, types, value("tokenizer.ggml.merges"), value("tokenizer.ggml.pre", "default"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the GGUF file")
    parser.add_argument("--output", default="tokenizer.json", help="the file to write (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        tokenizer = from_gguf(arguments.model)
    except (OSError, ValueError) as error:
        sys.exit(f"{arguments.model}: {error}")
    tokenizer.save(arguments.output)
    print(f"{arguments.output}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
