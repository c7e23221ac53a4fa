"""The Hugging Face `tokenizers` tokenizer that a GGUF file with the smollm pre-tokenizer describes."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4


def load(reader):
    def field(name):
        return reader.fields[f"tokenizer.ggml.{name}"].contents()

    assert (field("model"), field("pre")) == ("gpt2", "smollm"), "only the default model's tokenizer is written here"
    spellings = field("tokens")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={spelling: token for token, spelling in enumerate(spellings)},
            merges=[tuple(merge.split(" ")) for merge in field("merges")],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(spellings, field("token_type"))
    tokenizer.add_special_tokens(
        [AddedToken(spelling, special=True, normalized=False) for spelling, kind in kinds if kind in (CONTROL, USER_DEFINED)]
    )
    return tokenizer
