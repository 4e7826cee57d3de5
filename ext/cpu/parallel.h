// parallel_for over [0, n) for code whose result does not depend on how the range is cut.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

namespace rn {

using Range = std::function<void(std::int64_t, std::int64_t)>;

// Runs body(begin, end) over disjoint pieces that cover [0, count) on up to `threads` threads
// (0: as many as the machine allows this process); pieces are multiples of `grain` but the last.
void parallel_for(std::int64_t count, std::int64_t grain, int threads, const Range& body);

}  // namespace rn
