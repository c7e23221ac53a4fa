// The physical pages: who counts them and which are free. Knows nothing of sequences or tokens.
//
// A page is free (count 0, on the free list) or in use (count = its holders). Allocates only in its constructor.
// Handing out more than there is, retaining a free page and returning one too often are bugs of the caller and stop the
// process.
#pragma once

#include <cstdint>
#include <vector>

#include "core/core.h"

namespace headwater::kv {

class PagePool {
 public:
  explicit PagePool(uint32_t pages);

  uint32_t pages() const { return static_cast<uint32_t>(counts_.size()); }
  uint32_t pages_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t count(PageId page) const;

  PageId take();              // a free page, now with count 1; the most recently returned first
  void retain(PageId page);   // one holder more
  bool release(PageId page);  // one holder less; true: that was the last one and the page is free

  Status audit() const;  // the free list holds exactly the pages with count 0, each once

 private:
  std::vector<uint32_t> counts_;  // [pages]
  std::vector<PageId> free_;      // a stack; its capacity is `pages`, so it never grows
};

}  // namespace headwater::kv
