#!/usr/bin/env python3
"""Writes what the Python package `tokenizers` makes of many texts: tests/golden/tokenizers/.

NAME.json        small tokenizers, each trained here on the texts themselves; between them they have every part that
                 Headwater reads from a tokenizer.json
goldens.jsonl    one JSON object a line: {"name", "hashes", "samples"}; for the small ones, and for the vocabularies that
                 tools/fetch_vocabularies.sh fetches ("gguf": true)

The texts are the "text" of tests/golden/tokenizer_smollm2.jsonl and GENERATED more, put together from those by the rule in
generate(), which tests/golden/tokenizer_texts.cc repeats. hashes: six hexadecimal digits a text, of the ids with control
tokens as text, the ids with control tokens found, and what the latter decode to. samples: [text number, ids] for some.

Made with tokenizers 0.23.3, gguf 0.19.0, Python 3.11. The same versions give the same files.
  tools/make_tokenizer_goldens.py                    writes everything
  tools/make_tokenizer_goldens.py --show NAME NUMBER prints one text and what is made of it
"""

import argparse
import base64
import json
import pathlib
import struct

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_tokenizer_json

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "golden" / "tokenizers"
VOCABULARIES = ROOT / "models" / "vocabularies"
GENERATED = 2000
SAMPLES = 40
MARK = "\u2581"


# ---- texts ----


def generate(pieces, count):
    state = 20240315
    def below(limit):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % limit

    for _ in range(count):
        text = ""
        for _ in range(2 + below(5)):
            piece = pieces[below(len(pieces))]
            begin = below(len(piece) - 39) if len(piece) > 40 else 0
            text += piece[begin : begin + 40] + ["", "", " ", "\n", "  "][below(5)]
        yield text


def texts():
    lines = (ROOT / "tests" / "golden" / "tokenizer_smollm2.jsonl").read_text(encoding="ascii").splitlines()
    pieces = [json.loads(line)["text"] for line in lines]
    return pieces + list(generate(pieces, GENERATED))


# ---- small tokenizers ----


def added(content, special=True, **options):
    return AddedToken(content, special=special, normalized=options.pop("normalized", False), **options)


COMMON = [added("<unk>"), added("<s>"), added("</s>"), added("<|im_start|>"), added("<|im_end|>"), added("<|endoftext|>")]
EXTRA = [
    added("[INST]", special=False, lstrip=True),
    added("#tag", special=False, rstrip=True),
    added("the", special=False, single_word=True),
    added("IS", special=False, normalized=True),
    added("<|user|>", rstrip=True, lstrip=True),
    added("\n\n\n", special=False),
]


def bpe_trainer(size, **options):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=COMMON, show_progress=False, **options)


def trained(tokenizer, trainer, corpus):
    tokenizer.train_from_iterator([text for text in corpus if "<|" not in text and "</s>" not in text], trainer)
    return tokenizer


def extended(tokenizer, extra=EXTRA):
    tokenizer.add_tokens([token for token in extra if not token.special])
    tokenizer.add_special_tokens([token for token in extra if token.special])
    return tokenizer


def ends(tokenizer):
    return processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )


BYTES = pre_tokenizers.ByteLevel.alphabet()


def byte_level(corpus, steps, normalizer=None, ignore_merges=False, extra=EXTRA):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = steps
    tokenizer.decoder = decoders.ByteLevel()
    extended(trained(tokenizer, bpe_trainer(900, initial_alphabet=BYTES), corpus), extra)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), ends(tokenizer)])
    return tokenizer


def gpt2_like(corpus):
    return byte_level(corpus, pre_tokenizers.ByteLevel(add_prefix_space=True), normalizers.NFC())


def llama3_like(corpus):
    return byte_level(corpus, make_tokenizer_json.split_then_bytes(make_tokenizer_json.LLAMA3), ignore_merges=True)


def deepseek_like(corpus):
    steps = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("[\r\n]"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "merged_with_previous"),
            pre_tokenizers.Split(Regex("[一-龥ࠀ-一가-퟿]+"), "contiguous"),
            pre_tokenizers.Split(Regex(r"\s+$"), "merged_with_next"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return byte_level(corpus, steps, normalizers.Sequence([]), extra=[])


def falcon_steps():
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation(behavior="contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )


def falcon_like(corpus):
    return byte_level(corpus, falcon_steps())


def byte_tokens():
    return [f"<0x{byte:02X}>" for byte in range(256)]


def with_byte_fallback(tokenizer):
    """BPE's trainer knows no byte tokens: they follow the others."""
    described = json.loads(tokenizer.to_str())
    vocabulary = described["model"]["vocab"]
    for token in byte_tokens():
        vocabulary[token] = len(vocabulary)
    described["model"]["byte_fallback"] = True
    return extended(Tokenizer.from_str(json.dumps(described)))


def llama2_like(corpus):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    # Words for training alone: the tokenizer itself merges over the whole text.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    trained(tokenizer, bpe_trainer(900, limit_alphabet=300), corpus)
    described = json.loads(tokenizer.to_str())
    described["pre_tokenizer"] = None
    tokenizer = with_byte_fallback(Tokenizer.from_str(json.dumps(described)))
    tokenizer.post_processor = ends(tokenizer)
    return tokenizer


def gemma_like(corpus):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    trained(tokenizer, bpe_trainer(900, limit_alphabet=300), corpus)
    described = json.loads(tokenizer.to_str())
    described["pre_tokenizer"]["pattern"] = {"String": " "}
    return with_byte_fallback(Tokenizer.from_str(json.dumps(described)))


def characters_like(corpus):
    """No byte level and no fallback: what is not known becomes <unk>, each character one."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(r"[‘’]"), "'")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Split(Regex("[A-Z]+"), "isolated", invert=True),
            pre_tokenizers.Split("=", "removed"),
        ]
    )
    tokenizer.decoder = decoders.Fuse()
    extended(trained(tokenizer, bpe_trainer(900, limit_alphabet=250), corpus))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return tokenizer


def charsmap(replacements):
    """SentencePiece's compiled map (darts-clone's double array) of a few strings."""
    strings = b""
    tree = {}
    for source, target in replacements.items():
        node = tree
        for byte in source.encode():
            node = node.setdefault(byte, {})
        node[None] = len(strings)
        strings += target.encode() + b"\0"
    units = {0: 0}
    taken = {0}

    def place(node, index):
        labels = [0 if label is None else label for label in node]
        offset = next(o for o in range(1, 1 << 21) if all((index ^ o ^ label) not in taken for label in labels))
        taken.update(index ^ offset ^ label for label in labels)
        units[index] |= offset << 10
        for label, child in node.items():
            position = index ^ offset ^ (label or 0)
            if label is None:
                units[index] |= 1 << 8
                units[position] = child | 1 << 31
            else:
                units[position] = label
                place(child, position)

    place(tree, 0)
    array = [units.get(i, 0) for i in range(max(units) + 257)]
    return struct.pack(f"<I{len(array)}I", 4 * len(array), *array) + strings


SMALL_MAP = {
    "ﬁ": "fi", "①": "1", "②": "2", "Ａ": "A", "Ｂ": "B", "\u3000": " ", "\u00a0": " ", "ﾊ": "ハ", "ﾊﾟ": "パ", "e\u0301": "é", "E\u0301": "É",
    "n\u0303": "ñ", "™": "TM", "…": "...", "\n": " ", "\t": " ", "\u200b": "", "½": "1⁄2", "İ": "i\u0307", "２": "2", "３": "3",
}  # fmt: skip


def unigram_trainer(size, special_tokens=COMMON):
    return trainers.UnigramTrainer(
        vocab_size=size, special_tokens=special_tokens, unk_token="<unk>", show_progress=False
    )


def precompiled(corpus):
    # Trained without the map, which Python cannot describe but as bytes.
    tokenizer = Tokenizer(models.Unigram())
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    extended(trained(tokenizer, unigram_trainer(900), corpus))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap(SMALL_MAP)), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.post_processor = ends(tokenizer)
    return tokenizer


def folded(corpus):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    # Lower case would spell control tokens for the model, which here never makes one: they follow its vocabulary.
    trained(tokenizer, unigram_trainer(700, COMMON[:1]), corpus)
    described = json.loads(tokenizer.to_str())
    described["model"]["byte_fallback"] = True
    described["model"]["vocab"] += [[token, -20.0] for token in byte_tokens()]
    return extended(Tokenizer.from_str(json.dumps(described)), COMMON[1:] + EXTRA)


SMALL = {
    "gpt2_like": gpt2_like,
    "llama3_like": llama3_like,
    "deepseek_like": deepseek_like,
    "falcon_like": falcon_like,
    "llama2_like": llama2_like,
    "gemma_like": gemma_like,
    "characters": characters_like,
    "precompiled": precompiled,
    "folded": folded,
}


# ---- fetched vocabularies, with the parts that their authors' tokenizer.json has ----

CONTROL, USER_DEFINED, BYTE = 3, 4, 6


def digits_then_gpt2():
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), make_tokenizer_json.gpt2()])


def deepseek_coder_steps():
    splits = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(expression), "isolated") for expression in splits]
        + [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


BYTE_LEVEL = {  # name -> (steps, ignores merges, normaliser)
    "gpt-2": (make_tokenizer_json.gpt2, False, None),
    "llama-bpe": (lambda: make_tokenizer_json.split_then_bytes(make_tokenizer_json.LLAMA3), True, None),
    "qwen2": (lambda: make_tokenizer_json.split_then_bytes(make_tokenizer_json.QWEN2), False, normalizers.NFC),
    "starcoder": (digits_then_gpt2, False, None),
    "falcon": (falcon_steps, False, None),
    "deepseek-coder": (deepseek_coder_steps, False, None),
    "command-r": (digits_then_gpt2, False, normalizers.NFC),
}


class Vocabulary:
    def __init__(self, name):
        fields = GGUFReader(VOCABULARIES / f"ggml-vocab-{name}.gguf").fields
        self.value = lambda key: fields["tokenizer.ggml." + key].contents()
        self.tokens, self.types = self.value("tokens"), self.value("token_type")

    def ids(self):
        return {token: number for number, token in enumerate(self.tokens)}

    def merges(self):
        return [(merge[: merge.index(" ", 1)], merge[merge.index(" ", 1) + 1 :]) for merge in self.value("merges")]

    def score_merges(self):
        """Every pair of tokens whose join is one, the best score first, and of equals in no order that matters."""
        scores, kinds = self.value("scores"), self.types
        ordinary = {token for token, kind in zip(self.tokens, kinds) if kind in (1, USER_DEFINED, 5)}
        pairs = []
        for token, score in zip(self.tokens, scores):
            if token in ordinary:
                cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
                pairs += [(-score, left, right) for left, right in cuts if left in ordinary and right in ordinary]
        return [(left, right) for _, left, right in sorted(pairs, key=lambda pair: pair[0])]

    def add_tokens(self, tokenizer):
        for token, kind in zip(self.tokens, self.types):
            if kind == CONTROL:
                tokenizer.add_special_tokens([added(token)])
            elif kind == USER_DEFINED:
                tokenizer.add_tokens([added(token, special=False)])
        return tokenizer


def from_vocabulary(name):
    vocabulary = Vocabulary(name)
    if name in BYTE_LEVEL:
        steps, ignores_merges, normalizer = BYTE_LEVEL[name]
        model = models.BPE(vocab=vocabulary.ids(), merges=vocabulary.merges(), ignore_merges=ignores_merges)
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = steps()
        tokenizer.decoder = decoders.ByteLevel()
        if normalizer:
            tokenizer.normalizer = normalizer()
        return vocabulary.add_tokens(tokenizer)
    merges = vocabulary.merges() if name == "gemma-4" else vocabulary.score_merges()
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary.ids(), merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    replace = normalizers.Replace(" ", MARK)
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if name == "gemma-4":
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), replace])
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return vocabulary.add_tokens(tokenizer)


FETCHED = [*BYTE_LEVEL, "llama-spm", "gemma-4"]
# Its added tokens "ö" and their like decode to single bytes in the package; here they decode to their spelling.
DECODES_OTHERWISE = {"deepseek-coder"}


# ---- goldens ----


def without_control(tokenizer):
    """The same tokenizer, to which control tokens are text like any other, even to its model."""
    described = json.loads(tokenizer.to_str())
    control = {token["content"] for token in described["added_tokens"] if token["special"]}
    described["added_tokens"] = [token for token in described["added_tokens"] if not token["special"]]
    hide = lambda token: "\ue123\ue123" + token if token in control else token
    model = described["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [[hide(token), score] for token, score in model["vocab"]]
    else:
        model["vocab"] = {hide(token): number for token, number in model["vocab"].items()}
        model["merges"] = [pair for pair in model["merges"] if not control & {*pair, "".join(pair)}]
        model["unk_token"] = model["unk_token"] and hide(model["unk_token"])
    described["post_processor"] = None
    return Tokenizer.from_str(json.dumps(described))


def hash_of(parts):
    """FNV-1a over bytes, folded to 24 bits."""
    value = 0xCBF29CE484222325
    for part in parts:
        for byte in part:
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return (value ^ value >> 24 ^ value >> 48) & 0xFFFFFF


def encoded(tokenizer, plain, text):
    ids = plain.encode(text, add_special_tokens=False).ids
    parsed = tokenizer.encode(text, add_special_tokens=False).ids
    return ids, parsed, tokenizer.decode(parsed, skip_special_tokens=False)


def golden(name, cases):
    tokenizer = load(name)
    plain = without_control(tokenizer)
    hashes, samples = "", []
    for number, text in enumerate(cases):
        ids, parsed, decoded = encoded(tokenizer, plain, text)
        separator = b"\xff" * 4
        words = lambda numbers: struct.pack(f"<{len(numbers)}I", *numbers)
        if name in DECODES_OTHERWISE:
            decoded = ""
        hashes += f"{hash_of([words(ids), separator, words(parsed), separator, decoded.encode()]):06x}"
        if number % (len(cases) // SAMPLES) == 0:
            samples.append([number, parsed])
    line = {"name": name, "hashes": hashes, "samples": samples}
    if name in DECODES_OTHERWISE:
        line["decodes_otherwise"] = True
    if name in FETCHED:
        line["gguf"] = True
    else:
        line["prompt"] = tokenizer.encode("a", add_special_tokens=True).ids
    return json.dumps(line, separators=(",", ":"))


def load(name):
    return Tokenizer.from_file(str(FOLDER / f"{name}.json")) if name in SMALL else from_vocabulary(name)


def write_small(name, corpus):
    """Unigram's trainer depends on the order of hash maps: what is there already is kept."""
    path = FOLDER / f"{name}.json"
    if path.exists():
        return
    described = json.loads(SMALL[name](corpus).to_str())
    if name == "gpt2_like":  # as files of before version 0.20 have it
        described["model"]["merges"] = [" ".join(pair) for pair in described["model"]["merges"]]
    path.write_text(json.dumps(described, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of the tokenizers to do again (default: all)")
    parser.add_argument("--show", nargs=2, metavar=("NAME", "NUMBER"))
    arguments = parser.parse_args()
    cases = texts()
    if arguments.show:
        name, number = arguments.show
        tokenizer = load(name)
        text = cases[int(number)]
        print(repr(text), *encoded(tokenizer, without_control(tokenizer), text), sep="\n")
        return
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "goldens.jsonl"
    kept = {json.loads(line)["name"]: line for line in path.read_text().splitlines()} if path.exists() else {}
    for name in arguments.names or [*SMALL, *FETCHED]:
        if name in SMALL:
            write_small(name, cases)
        kept[name] = golden(name, cases)
        print(f"{name}: {len(cases)} texts", flush=True)
    path.write_text("".join(kept[name] + "\n" for name in [*SMALL, *FETCHED]), encoding="ascii")


if __name__ == "__main__":
    main()
