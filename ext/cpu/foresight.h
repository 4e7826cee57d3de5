// Draws of a whole work item at once: the first block of every stream of every sample, made by the
// vector unit in a fraction of the time they take one by one.
#pragma once
#include <vector>

#include "keyed.h"
#include "renaissance/operation.h"

namespace rn {

class Foresight {
 public:
  // For samples `ids`; a few samples are quicker drawn one by one.
  void draw(const std::vector<u32>& streams, u64 key, u32 epoch, const i64* ids, i64 count) {
    const i32 kinds = static_cast<i32>(streams.size()), stride = static_cast<i32>(count);
    if (count < FEWEST || kinds > MAX_OPERATIONS || count > MOST) return;
    for (i32 k = 0; k < kinds; ++k)
      keyed_blocks(key, streams[k], epoch, reinterpret_cast<const u64*>(ids), count,
                   blocks_.data() + k * stride);
    seen_ = {streams.data(), blocks_.data(), kinds, stride};
  }
  // From now on sample k of them is made.
  void look_at(i64 k) { seen_.first = blocks_.data() + k; }
  void forget() { seen_.count = 0; }
  const Foreseen* seen() const { return seen_.count > 0 ? &seen_ : nullptr; }

 private:
  static constexpr i64 FEWEST = 4, MOST = 64;  // samples
  std::vector<Block> blocks_ = std::vector<Block>(MAX_OPERATIONS * MOST);
  Foreseen seen_{};
};

}  // namespace rn
