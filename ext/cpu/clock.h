// Wall time, as a feed measures and waits.
#pragma once
#include <chrono>

#include "renaissance/portable.h"

namespace rn {

using Clock = std::chrono::steady_clock;

inline u64 since(Clock::time_point start) {
  return static_cast<u64>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::nanoseconds(static_cast<i64>(seconds * 1e9));
}

}  // namespace rn
