#include "trace.h"

namespace ts::trace {

// Every load acquires: the second look at the tag comes after the words between.
bool Reader::get(uint64_t index, ts_trace_point &out) const {
  const Slot &slot = header_->slots[index & (capacity_ - 1)];
  const uint64_t tag = slot.tag.load(std::memory_order_acquire);
  out.time_ns = static_cast<int64_t>(slot.time_ns.load(std::memory_order_acquire));
  out.request = slot.request.load(std::memory_order_acquire);
  out.value = static_cast<int64_t>(slot.value.load(std::memory_order_acquire));
  out.step = static_cast<uint32_t>(tag >> 32);
  out.kind = static_cast<uint16_t>(tag >> 16);
  out.zero = 0;
  return lap_of(tag) == lap_of(tag_of(index, capacity_, 0, 0)) &&
         slot.tag.load(std::memory_order_acquire) == tag;
}

void Reader::drop_overwritten() {
  const uint64_t begun = head();
  if (begun - next_ <= capacity_) return;
  lost_ += static_cast<int64_t>(begun - capacity_ - next_);
  next_ = begun - capacity_;
}

int64_t Reader::read(ts_trace_point *out, int64_t max) {
  int64_t found = 0;
  while (found < max) {
    drop_overwritten();
    if (next_ == head()) break;
    if (get(next_, out[found])) {
      ++found;
    } else if (head() - next_ > kPatience) {
      ++lost_;  // overwritten a moment ago, or its writer is gone
    } else {
      break;  // its writer is at it
    }
    ++next_;
  }
  return found;
}

}  // namespace ts::trace
