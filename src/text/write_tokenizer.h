// tokenizer.* of a GGUF file from the texts of a model's folder, for write_gguf (model/write_gguf.h).
#pragma once

#include "model/write_gguf.h"

namespace headwater::text {

// Byte-level BPE that is cut as a pre-tokeniser known by name (pre_tokenizer_rules.h), and SentencePiece's BPE
// (sentencepiece_scores.h); with the whole tokenizer.json where GGUF's own keys do not say all of it. rows: of the
// embedding, which may be more than the tokens; the rest are named [PADn] and marked unused. kUnsupported: any other
// tokenizer; kCorrupt: a token beyond the embedding; and what read_tokenizer_texts() refuses.
Status write_tokenizer(const model::TokenizerTexts& texts, uint64_t rows, model::GgufHeader& header);

}  // namespace headwater::text
