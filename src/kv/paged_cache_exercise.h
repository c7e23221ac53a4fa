// Drives a PagedCache and its model with the same operations and compares them after each, for the property test and
// the fuzzer. It also plays the back end: memory of one word a token slot, where a token's word depends on the salt and
// on every token before it, as keys and values do. So a page that is shared, evicted, merged or overwritten wrongly
// reads back wrong.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "kv/paged_cache_model.h"

namespace headwater::kv {

class CacheExercise {
 public:
  using Choose = std::function<uint32_t(uint32_t bound)>;  // a number below bound (bound <= 256)

  CacheExercise(const CacheConfig& config, Choose choose)
      : config_(config),
        choose_(std::move(choose)),
        cache_(std::move(PagedCache::create(config).value())),
        model_(config),
        memory_(config.pages, std::vector<uint64_t>(config.page_size)) {}

  // One operation and all comparisons; "" or what went wrong first.
  std::string step() {
    switch (choose_(16)) {
      case 0:
      case 1:
      case 2:
        open();
        break;
      case 3:
      case 4:
      case 5:
      case 6:
        with_sequence(&CacheExercise::grow);
        break;
      case 7:
      case 8:
        with_sequence(&CacheExercise::publish);
        break;
      case 9:
        with_sequence(&CacheExercise::fork);
        break;
      case 10:
        with_sequence(&CacheExercise::trim);
        break;
      case 11:
      case 12:
        with_sequence(&CacheExercise::close);
        break;
      case 13:
        pin();
        break;
      case 14:
        unpin();
        break;
      case 15:
        evict();
        break;
    }
    compare();
    return failure_;
  }

  const PagedCache& cache() const { return cache_; }

 private:
  using Tokens = CacheModel::Tokens;
  struct Written {  // what the engine would know of a sequence
    Tokens tokens;
    std::vector<uint64_t> words;  // what the memory must hold for each token
    uint64_t version = 0;
    std::vector<PageId> pages;  // when that version was last seen
  };

  void expect(bool condition, const char* what) {
    if (!condition && failure_.empty()) failure_ = what;
  }
  static Salt salt_of(uint64_t low) { return {low, low}; }
  static uint64_t word_after(uint64_t word, TokenId token) {
    return (word ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u + 1;
  }

  void with_sequence(void (CacheExercise::*operation)(SequenceSlot)) {
    if (written_.empty()) return;
    (this->*operation)(std::next(written_.begin(), choose_(static_cast<uint32_t>(written_.size())))->first);
  }

  // Tokens repeat within a page, mostly, so that prompts of few choices meet often at every page size.
  void extend(Tokens& tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const bool repeat = tokens.size() % config_.page_size != 0 && choose_(std::min(4 * config_.page_size, 256u)) != 0;
      tokens.push_back(repeat ? tokens.back() : static_cast<TokenId>(choose_(3)));
    }
  }

  std::pair<uint64_t, Tokens> choose_prompt() {  // random, or a cached prefix, with a random tail
    std::pair<uint64_t, Tokens> prompt(choose_(2), Tokens());
    if (!model_.tree().empty() && choose_(4) != 0) {
      prompt = std::next(model_.tree().begin(), choose_(static_cast<uint32_t>(model_.tree().size())))->first;
    }
    extend(prompt.second, choose_(2 * config_.page_size));
    return prompt;
  }

  void open() {
    const auto [salt, prompt] = choose_prompt();
    const PrefixMatch match = cache_.match(prompt, salt_of(salt));
    const PrefixMatch match_expected = model_.match(prompt, salt);
    expect(match.tokens == match_expected.tokens, "match: tokens");
    expect(match.pages_evictable == match_expected.pages_evictable, "match: pages_evictable");
    const Result<SequenceSlot> slot = cache_.open(salt_of(salt));
    expect(slot.is_ok() == (written_.size() < config_.sequences_max), "open: success");
    if (!slot) return;
    model_.open(*slot, salt);
    const uint32_t tokens_max = choose_(static_cast<uint32_t>(prompt.size()) + 2);
    const uint32_t attached = cache_.attach_prefix(*slot, prompt, tokens_max);
    expect(attached == model_.attach_prefix(*slot, prompt, tokens_max), "attach_prefix: tokens");
    Written& written = written_[*slot] = {};
    written.tokens.assign(prompt.begin(), prompt.begin() + attached);
    for (const TokenId token : written.tokens) {
      written.words.push_back(word_after(written.words.empty() ? salt : written.words.back(), token));
    }
  }

  void grow(SequenceSlot slot) {
    Written& written = written_.at(slot);
    const uint32_t length = static_cast<uint32_t>(written.tokens.size());
    const uint32_t length_new = length + choose_(2 * config_.page_size + 1);
    const uint32_t total = length_new + (choose_(4) == 0 ? choose_(2 * config_.page_size) : 0);  // some room ahead
    copies_.clear();
    const Status status = cache_.reserve(slot, length, total, copies_);
    const CacheModel::Reserved expected = model_.reserve(slot, length, total);
    expect(status.code() == expected.code, "reserve: code");
    expect(copies_.size() == (expected.copied ? 1 : 0), "reserve: copies");
    if (!status) return;
    for (const PageCopy& copy : copies_) memory_[copy.to] = memory_[copy.from];
    extend(written.tokens, length_new - length);
    for (uint32_t i = length; i < length_new; ++i) {
      const uint64_t before = i == 0 ? model_.sequences().at(slot).salt : written.words.back();
      written.words.push_back(word_after(before, written.tokens[i]));
      memory_[cache_.pages(slot)[i / config_.page_size]][i % config_.page_size] = written.words[i];
    }
  }

  void publish(SequenceSlot slot) {
    const Tokens& tokens = written_.at(slot).tokens;
    uint32_t computed = static_cast<uint32_t>(tokens.size());
    if (choose_(4) == 0) computed -= std::min(computed, choose_(config_.page_size + 1));
    cache_.publish(slot, tokens, computed);
    model_.publish(slot, tokens, computed);
  }

  void fork(SequenceSlot parent) {
    const Result<SequenceSlot> child = cache_.fork(parent);
    expect(child.is_ok() == (written_.size() < config_.sequences_max), "fork: success");
    if (!child) return;
    model_.fork(parent, *child);
    written_[*child] = {.tokens = written_.at(parent).tokens, .words = written_.at(parent).words};
  }

  void trim(SequenceSlot slot) {
    Written& written = written_.at(slot);
    const uint32_t length = static_cast<uint32_t>(written.tokens.size());
    const uint32_t tokens = length - std::min(length, choose_(3 * config_.page_size));
    cache_.trim(slot, tokens);
    model_.trim(slot, tokens);
    written.tokens.resize(tokens);
    written.words.resize(tokens);
  }

  void close(SequenceSlot slot) {
    cache_.close(slot);
    model_.close(slot);
    written_.erase(slot);
  }

  void pin() {
    auto [salt, tokens] = choose_prompt();
    const uint32_t pinned = cache_.pin(tokens, salt_of(salt));
    expect(pinned == model_.pin(tokens, salt, 1), "pin: tokens");
    tokens.resize(pinned);
    if (pinned > 0) pins_.emplace_back(salt, tokens);
  }

  void unpin() {
    if (pins_.empty()) return;
    const auto pin = pins_.begin() + choose_(std::min<uint32_t>(static_cast<uint32_t>(pins_.size()), 256));
    cache_.unpin(pin->second, salt_of(pin->first));
    model_.pin(pin->second, pin->first, -1);
    pins_.erase(pin);
  }

  void evict() {
    const bool all = choose_(8) == 0;
    const uint32_t pages = choose_(4);
    uint32_t expected = 0;
    while ((all || expected < pages) && model_.evict_one()) ++expected;
    if (all) {
      cache_.drop_prefixes();
    } else {
      expect(cache_.evict(pages) == expected, "evict: pages");
    }
  }

  void compare() {
    const Status audit = cache_.audit();
    if (!audit && failure_.empty()) failure_ = audit.message();
    expect(cache_.pages_free() == model_.pages_free(), "pages_free");
    expect(cache_.pages_held() == model_.pages_held(), "pages_held");
    expect(cache_.pages_available() == model_.pages_available(), "pages_available");
    expect(cache_.sequences_open() == written_.size(), "sequences_open");
    std::map<int, PageId> page_of;  // model's id -> real id; must be one to one
    for (const auto& [slot, sequence] : model_.sequences()) {
      expect(cache_.pages(slot).size() == sequence.pages.size(), "pages: length");
      for (size_t i = 0; i < sequence.pages.size() && failure_.empty(); ++i) {
        const PageId page = cache_.pages(slot)[i];
        expect(page_of.try_emplace(sequence.pages[i], page).first->second == page, "pages: one page became two");
      }
    }
    const std::map<int, uint32_t> counts = model_.reference_counts();
    std::set<PageId> distinct;
    for (const auto& [model_page, page] : page_of) {
      expect(distinct.insert(page).second, "pages: two pages became one");
      expect(cache_.reference_count(page) == counts.at(model_page), "reference_count");
    }
    for (auto& [slot, written] : written_) compare_sequence(slot, written);
  }

  void compare_sequence(SequenceSlot slot, Written& written) {
    const std::span<const PageId> pages = cache_.pages(slot);
    const uint64_t version = cache_.version(slot);
    if (version == written.version) {
      const size_t common = std::min(pages.size(), written.pages.size());
      expect(std::ranges::equal(pages.first(common), std::span(written.pages).first(common)), "version: kept");
    } else {
      expect(versions_.insert(version).second, "version: used twice");
      written.version = version;
    }
    written.pages.assign(pages.begin(), pages.end());
    for (size_t i = 0; i < written.words.size() && failure_.empty(); ++i) {
      expect(memory_[pages[i / config_.page_size]][i % config_.page_size] == written.words[i],
             "memory: a token changed");
    }
  }

  CacheConfig config_;
  Choose choose_;
  PagedCache cache_;
  CacheModel model_;
  std::vector<std::vector<uint64_t>> memory_;  // [pages][page_size]
  std::map<SequenceSlot, Written> written_;
  std::vector<std::pair<uint64_t, Tokens>> pins_;
  std::set<uint64_t> versions_;
  std::vector<PageCopy> copies_;
  std::string failure_;
};

}  // namespace headwater::kv
