#include "text/tokenizer_json_document.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

namespace headwater::text {
namespace {

namespace json = boost::json;

constexpr size_t kBytesMax = size_t{1} << 31;  // stretches are counted in 32 bits
constexpr size_t kNodesMax = 1u << 19;         // of the rest; an added token has eight

// Boost.JSON's parser calls this for each event. Nodes go to a value_stack, except inside model.vocab and model.merges.
class Handler {
 public:
  static constexpr size_t max_object_size = kBytesMax;
  static constexpr size_t max_array_size = kBytesMax;
  static constexpr size_t max_key_size = kBytesMax;
  static constexpr size_t max_string_size = kBytesMax;
  using Error = json::error_code;

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error& error) { return begin(true, error); }
  bool on_array_begin(Error& error) { return begin(false, error); }
  bool on_object_end(size_t count, Error& error) {
    if (list_ != List::kNone) return end_in_list(count, error);
    --depth_;
    nodes_.push_object(count);
    return true;
  }
  bool on_array_end(size_t count, Error& error) {
    if (list_ != List::kNone) return end_in_list(count, error);
    --depth_;
    nodes_.push_array(count);
    return true;
  }
  bool on_key_part(json::string_view part, size_t, Error&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, Error& error) {
    text_.append(part.data(), part.size());
    if (list_ != List::kNone) return add_text(error);
    if (depth_ <= 2) key_[depth_ - 1] = text_;
    nodes_.push_key(text_);
    text_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, Error&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, size_t, Error& error) {
    text_.append(part.data(), part.size());
    if (list_ != List::kNone) return add_text(error);
    nodes_.push_string(text_);
    text_.clear();
    return count_node(error);
  }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(int64_t number, json::string_view, Error& error) {
    if (list_ != List::kNone) return add_number(static_cast<double>(number), error);
    nodes_.push_int64(number);
    return count_node(error);
  }
  bool on_uint64(uint64_t number, json::string_view, Error& error) {
    if (list_ != List::kNone) return add_number(static_cast<double>(number), error);
    nodes_.push_uint64(number);
    return count_node(error);
  }
  bool on_double(double number, json::string_view, Error& error) {
    if (list_ != List::kNone) return add_number(number, error);
    nodes_.push_double(number);
    return count_node(error);
  }
  bool on_bool(bool value, Error& error) {
    if (list_ != List::kNone) return refuse_form(error);
    nodes_.push_bool(value);
    return count_node(error);
  }
  bool on_null(Error& error) {
    if (list_ != List::kNone) return refuse_form(error);
    nodes_.push_null();
    return count_node(error);
  }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

  TokenizerDocument take() {
    document_.rest = nodes_.release();
    return std::move(document_);
  }
  bool has_too_many_nodes() const { return node_count_ > kNodesMax; }
  bool has_odd_form() const { return has_odd_form_; }

 private:
  enum class List : uint8_t { kNone, kVocabulary, kMerges };

  bool begin(bool is_object, Error& error) {
    if (list_ != List::kNone) {
      ++list_depth_;
      is_object_ = is_object_ || is_object;
      return list_depth_ == 2 && !is_object_ ? true : refuse_form(error);
    }
    const bool in_model = depth_ == 2 && key_[0] == "model";
    if (in_model && key_[1] == "vocab") {
      list_ = List::kVocabulary;
    } else if (in_model && key_[1] == "merges") {
      list_ = List::kMerges;
    } else {
      ++depth_;
      return count_node(error);
    }
    const bool is_second = list_ == List::kVocabulary ? !document_.spellings.empty() : !document_.merges.empty();
    if (is_second || (list_ == List::kMerges && is_object)) return refuse_form(error);
    list_depth_ = 1;
    is_object_ = is_object;
    if (list_ == List::kVocabulary) document_.numbers_are_scores = !is_object;
    return true;
  }

  // The list's own end, or that of a pair in it.
  bool end_in_list(size_t count, Error& error) {
    if (--list_depth_ > 0) return count == 2 ? true : refuse_form(error);
    if (list_ == List::kVocabulary && document_.spellings.size() != document_.numbers.size()) return refuse_form(error);
    list_ = List::kNone;
    nodes_.push_null();
    return true;
  }

  bool add_text(Error& error) {
    const TokenizerDocument::Text stretch = {static_cast<uint32_t>(document_.characters.size()),
                                             static_cast<uint32_t>(text_.size())};
    document_.characters += text_;
    text_.clear();
    if (list_ == List::kVocabulary) {
      const bool follows_number = document_.spellings.size() == document_.numbers.size();
      if (!follows_number || list_depth_ != (is_object_ ? 1 : 2)) return refuse_form(error);
      document_.spellings.push_back(stretch);
      return true;
    }
    const bool is_pair = list_depth_ == 2;
    if (!document_.merges.empty() && is_pair != document_.merges_are_pairs) return refuse_form(error);
    document_.merges_are_pairs = is_pair;
    document_.merges.push_back(stretch);
    return true;
  }

  bool add_number(double number, Error& error) {
    const bool follows_text = document_.spellings.size() == document_.numbers.size() + 1;
    if (list_ != List::kVocabulary || !follows_text) return refuse_form(error);
    document_.numbers.push_back(number);
    return true;
  }

  bool count_node(Error& error) {
    if (++node_count_ <= kNodesMax) return true;
    error = json::error::exception;
    return false;
  }

  bool refuse_form(Error& error) {
    has_odd_form_ = true;
    error = json::error::exception;
    return false;
  }

  TokenizerDocument document_;
  json::value_stack nodes_;
  std::string text_;    // of the key or string that is being read
  std::string key_[2];  // the last keys of the two outermost levels
  size_t depth_ = 0;    // of nodes
  size_t node_count_ = 0;
  List list_ = List::kNone;
  size_t list_depth_ = 0;
  bool is_object_ = false;  // the list is one
  bool has_odd_form_ = false;
};

}  // namespace

Result<TokenizerDocument> parse_tokenizer_document(std::string_view text) {
  if (text.size() > kBytesMax) {
    return error(ErrorCode::kUnsupported, "tokenizer.json has {} bytes; at most {} are read", text.size(), kBytesMax);
  }
  json::basic_parser<Handler> parser(json::parse_options{});  // nesting of at most 32, no extensions
  json::error_code failure;
  size_t read = 0;
  try {
    read = parser.write_some(false, text.data(), text.size(), failure);
  } catch (const std::exception& exception) {
    return error(ErrorCode::kCorrupt, "tokenizer.json: {}", exception.what());
  }
  if (parser.handler().has_too_many_nodes()) {
    return error(ErrorCode::kUnsupported, "tokenizer.json holds more than {} values beside its vocabulary and merges",
                 kNodesMax);
  }
  if (parser.handler().has_odd_form()) {
    return error(
        ErrorCode::kCorrupt,
        "tokenizer.json, at byte {}: model.vocab is {{\"token\": id}} or [[\"token\", score]], and model.merges "
        "[\"left right\"] or [[\"left\", \"right\"]]; this is neither",
        read);
  }
  if (failure || read != text.size()) {
    return error(ErrorCode::kCorrupt, "tokenizer.json is not JSON at byte {}: {}", read,
                 failure ? failure.message() : "something follows its end");
  }
  return parser.handler().take();
}

}  // namespace headwater::text
