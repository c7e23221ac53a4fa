// A tokenizer as plain data, whichever file it came from. Two readers fill it (GGUF metadata, tokenizer.json), one
// Tokenizer runs it:
//
//   text --added tokens--> stretches --normaliser--> --pre-tokeniser--> words --model--> ids
//
// The order and the meaning of every field are those of the Python package `tokenizers`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/core.h"
#include "model/gguf.h"
#include "model/tokenizer_texts.h"
#include "text/tokenizer.h"

namespace headwater::text {

enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// A string or an expression (regex.h) that is looked for.
struct Pattern {
  std::string text;
  bool is_expression = false;
  bool operator==(const Pattern&) const = default;
};

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStripAccents,
    kStrip,
    kReplace,
    kPrepend,
    kCharsmap
  };
  Kind kind;
  Pattern pattern;                 // kReplace
  std::string content;             // kReplace: what stands instead; kPrepend; kCharsmap: SentencePiece's compiled map
  bool strips_left = false;        // kStrip
  bool strips_right = false;       // kStrip
  bool is_longest_prefix = false;  // kCharsmap: as SentencePiece reads it; otherwise as the package `tokenizers` does
};

enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kSplit,        // at what the pattern matches (inverted: at what it does not match)
    kPrefixSpace,  // a piece that begins with no space gets one
    kByteLevel,    // bytes become symbols of GPT-2's alphabet (byte_alphabet.h)
    kMetaspace,    // a space becomes U+2581, and one is put in front
  };
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };  // kFirst: only where the piece begins the whole text
  Kind kind;
  Pattern pattern;  // kSplit
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool is_inverted = false;
  Prepend prepend = Prepend::kNever;  // kMetaspace
  bool splits = true;                 // kMetaspace: a word begins at each U+2581
  std::string mark = "\u2581";        // kMetaspace
  bool operator==(const PreTokenizerStep&) const = default;
};

// A token that is found in the text before any word is cut.
struct AddedToken {
  std::string_view spelling;  // not empty
  TokenId id;
  bool is_control = false;  // text that the template does not own never becomes it
  bool strips_left = false;
  bool strips_right = false;
  bool is_single_word = false;
  bool is_normalized = false;  // looked for, itself normalised, in normalised text between those that are not
  bool operator==(const AddedToken&) const = default;
};

enum class ModelKind : uint8_t {
  kBpe,      // merges, by rank
  kScores,   // SentencePiece's BPE: any two neighbours whose join is a token, the best score first
  kUnigram,  // the best sum of scores (log probabilities)
};

// Far beyond any tokenizer's, and what keeps a spec within twice its file and 16 MiB.
inline constexpr size_t kMergesMax = 3u << 18;

// Views point into the file that was read, into `owned`, or at the test's literals.
struct TokenizerSpec {
  std::vector<std::string_view> tokens;  // spellings; a token's index is its id; empty: no token has this id
  std::vector<TokenType> types;          // one a token
  std::vector<double> scores;            // one a token for kScores and kUnigram
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // the strongest first
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;

  ModelKind model = ModelKind::kBpe;
  bool is_byte_level = false;        // spellings are in GPT-2's byte alphabet
  bool has_byte_fallback = false;    // a character without a token becomes its bytes' tokens "<0xE2>"
  bool fuses_unknown = false;        // neighbouring unknown characters become one token
  bool ignores_merges = false;       // a word that is a token becomes that token without any merge
  bool merges_user_defined = false;  // user-defined tokens belong to the model too
  TokenId unknown = kNoToken;        // of a character that has no token; kNoToken: it gives none

  std::vector<TokenId> prompt_prefix;  // put in front of a plain prompt (BOS)
  std::vector<TokenId> prompt_suffix;
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId padding = kNoToken;
  std::vector<TokenId> end_of_turn;  // further tokens that the file names as ends of an answer

  std::string space_mark;  // decoding writes a space for this; empty: for nothing
  enum class LeadingSpace : uint8_t { kKept, kOneDropped, kOfFirstTokenDropped };
  LeadingSpace leading_space = LeadingSpace::kKept;  // decoding: the space that encoding put in front

  std::shared_ptr<const void> owned;  // what the views point into, where that is not the file itself

  // Whether text may become the token by way of the model (rather than by being an added token). No text becomes an unused
  // one, nor it text: it names a row of the embedding beyond the vocabulary.
  bool is_ordinary(size_t id) const {
    const TokenType type = types[id];
    if (tokens[id].empty()) return false;
    if (type == TokenType::kUserDefined) return merges_user_defined;
    return type == TokenType::kNormal;
  }
};

// "byte-level BPE, 49152 tokens, ...": on one line, for `inspect`.
std::string describe(const TokenizerSpec& spec);

// Reads tokenizer.ggml.*, or the tokenizer.json at tokenizer.huggingface.json where the file has one. kUnsupported for a
// model or a pre-tokeniser that is not known; kCorrupt for ids outside the vocabulary.
Result<TokenizerSpec> read_tokenizer_gguf(const model::GgufFile& file);

// Reads a tokenizer.json of the Python package `tokenizers`. kCorrupt for what is no such file; kUnsupported, naming
// it, for whatever would be done differently here.
Result<TokenizerSpec> read_tokenizer_json(std::string_view text);
// The same with what stands beside it in a folder (tokenizer_config.h).
Result<TokenizerSpec> read_tokenizer_texts(const model::TokenizerTexts& texts);

}  // namespace headwater::text
