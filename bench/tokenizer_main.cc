// How fast tokenizers are on one core: bench_tokenizer TEXT FILE...
//
// TEXT is repeated up to 1 MB (1,000,000 bytes); a FILE is a GGUF or a tokenizer.json. One JSON line a file: the time to load
// it, the speed of encoding and decoding TEXT, and the longest time for 1 MB of one letter, spaces, line breaks, digits,
// punctuation and combining marks. Times are of this thread's processor, the best of five, so that other work on the machine
// counts for little.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "model/gguf.h"
#include "text/tokenizer.h"

namespace headwater::bench {
namespace {

constexpr size_t kBytes = 1'000'000;
constexpr int kRepeats = 5;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string repeated(std::string_view piece) {
  std::string text;
  while (!piece.empty() && text.size() + piece.size() <= kBytes) text += piece;
  return text + std::string(piece.substr(0, kBytes - text.size()));
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
double best_seconds(Work work) {
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const double begin = thread_seconds();
    work();
    best = std::min(best, thread_seconds() - begin);
  }
  return best;
}

Result<text::Tokenizer> load(const std::string& path) {
  if (path.ends_with(".json")) return text::Tokenizer::create(model::TokenizerTexts{contents(path)});
  HEADWATER_ASSIGN_OR_RETURN(const model::GgufFile file, model::GgufFile::open(path));
  return text::Tokenizer::create(file);
}

Status measure(const std::string& path, const std::string& text) {
  const double begin = thread_seconds();
  HEADWATER_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, load(path));
  const double load_seconds = thread_seconds() - begin;
  const auto encode = [&](const std::string& what) {
    return tokenizer.encode(what, text::SpecialTokens::kAsText).value();
  };
  const std::vector<TokenId> ids = encode(text);
  const double encode_seconds = best_seconds([&] { encode(text); });
  const double decode_seconds = best_seconds([&] { tokenizer.decode(ids, true); });
  double worst_seconds = 0;
  for (const char* piece : {"a", "A", " ", "\n", "1", "<", "'", "\u0301", "\u0301\u0323", "字"}) {
    const std::string run = repeated(piece);
    worst_seconds = std::max(worst_seconds, best_seconds([&] { encode(run); }));
  }
  const double megabytes = 1e-6 * static_cast<double>(text.size());
  std::cout << fmt::format(
                   "{{\"file\": \"{}\", \"load_ms\": {:.0f}, \"tokens\": {}, \"encode_mb_per_s\": {:.1f}, "
                   "\"decode_mb_per_s\": {:.0f}, \"worst_ms_per_mb\": {:.0f}}}",
                   path.substr(path.rfind('/') + 1), 1e3 * load_seconds, ids.size(), megabytes / encode_seconds,
                   megabytes / decode_seconds, 1e3 * worst_seconds)
            << std::endl;
  return {};
}

}  // namespace
}  // namespace headwater::bench

int main(int count, char** arguments) {
  const std::string text = count > 2 ? headwater::bench::repeated(headwater::bench::contents(arguments[1])) : "";
  if (text.empty()) {
    std::cerr << "usage: bench_tokenizer TEXT FILE...; TEXT is a file that is not empty\n";
    return 2;
  }
  for (int i = 2; i < count; ++i) {
    const headwater::Status status = headwater::bench::measure(arguments[i], text);
    if (!status.is_ok()) {
      std::cerr << arguments[i] << ": " << status.message() << "\n";
      return 1;
    }
  }
  return 0;
}
