#include "kv/page_pool.h"

#include <numeric>

namespace headwater::kv {

PagePool::PagePool(uint32_t pages) : counts_(pages, 0), free_(pages) {
  std::iota(free_.rbegin(), free_.rend(), PageId{0});
}

uint32_t PagePool::count(PageId page) const {
  check(page < pages(), "no such page");
  return counts_[page];
}

PageId PagePool::take() {
  check(!free_.empty(), "a page was taken from an empty pool");
  const PageId page = free_.back();
  free_.pop_back();
  check(counts_[page] == 0, "a page on the free list has holders");
  counts_[page] = 1;
  return page;
}

void PagePool::retain(PageId page) {
  check(count(page) > 0, "a free page was retained");
  ++counts_[page];
}

bool PagePool::release(PageId page) {
  check(count(page) > 0, "a free page was released");
  if (--counts_[page] > 0) return false;
  free_.push_back(page);
  return true;
}

Status PagePool::audit() const {
  std::vector<bool> listed(pages(), false);
  for (const PageId page : free_) {
    if (page >= pages()) return error(ErrorCode::kInternal, "free list names page {} of {}", page, pages());
    if (listed[page]) return error(ErrorCode::kInternal, "page {} is on the free list twice", page);
    listed[page] = true;
  }
  for (PageId page = 0; page < pages(); ++page) {
    if (listed[page] != (counts_[page] == 0)) {
      return error(ErrorCode::kInternal, "page {} has count {} and is {} the free list", page, counts_[page],
                   listed[page] ? "on" : "not on");
    }
  }
  return {};
}

}  // namespace headwater::kv
