// What befalls requests and steps, as trace points at the time of the event that did it.
//
// Writes only: nothing that the scheduler decides depends on it, so a run with and one without a
// trace give the same plans.
#pragma once

#include <cstdint>

#include "scheduler/types.h"
#include "trace.h"

namespace ts {

class Tracer {
 public:
  void write_to(ts_trace *trace) { trace_ = trace; }
  bool on() const { return trace_ != nullptr; }
  void advance(int64_t now_us) { now_ns_ = now_us * 1000; }

  void note(ts_point_kind kind, RequestId request, StepId step, int64_t value) {
    trace::put(trace_, now_ns_, kind, request, step, value);
  }

 private:
  ts_trace *trace_ = nullptr;
  int64_t now_ns_ = 0;
};

}  // namespace ts
