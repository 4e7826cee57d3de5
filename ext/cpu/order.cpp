#include "order.h"

#include <algorithm>
#include <numeric>

#include "keyed.h"

namespace rn {

constexpr i64 DRAWN_TOGETHER = 64;

Part Batches::part(i64 step) const {
  const i64 first = step * batch, end = std::min(first + batch, samples);
  const i64 units = (end - first + unit - 1) / unit;
  const auto cut = [&](i64 r) { return std::min(first + r * units / world * unit, end); };
  return {cut(rank), cut(rank + 1) - cut(rank)};
}

template <class Id>
void shuffle(u64 key, Id* ids, u64 n) {
  std::iota(ids, ids + n, Id(0));
  u64 draws[DRAWN_TOGETHER];
  Block blocks[DRAWN_TOGETHER];
  for (u64 i = n; i > 1;) {
    const i64 count = static_cast<i64>(std::min<u64>(DRAWN_TOGETHER, i - 1));
    for (i64 k = 0; k < count; ++k) draws[k] = i - 1 - static_cast<u64>(k);
    keyed_blocks(key, 0u, 0u, draws, count, blocks);
    for (i64 k = 0; k < count; ++k, --i) {
      const u64 random = word64(blocks[k]);
      // Few products are as small as a rejected one: the division is for those.
      const bool is_drawn_again = random * i < i && rejects(random, i);
      const u64 j = is_drawn_again ? below_unbiased(key, i - 1, i) : below(random, i);
      std::swap(ids[i - 1], ids[j]);
    }
  }
}

template void shuffle(u64, i64*, u64);
template void shuffle(u64, u32*, u64);

void EpochOrder::prepare() {
  if (!shuffles_ || samples_ > static_cast<i64>(SHUFFLE_LIMIT) || table_.load()) return;
  u32* made = new u32[static_cast<std::size_t>(samples_)];
  shuffle(key_, made, static_cast<u64>(samples_));
  u32* none = nullptr;
  if (!table_.compare_exchange_strong(none, made)) delete[] made;  // another thread was faster
}

void EpochOrder::fill(const Part& part, i64* ids) {
  prepare();
  if (!shuffles_) {
    std::iota(ids, ids + part.count, part.first);
  } else if (const u32* table = table_.load()) {
    std::copy(table + part.first, table + part.first + part.count, ids);
  } else {
    const Feistel network = feistel(key_, static_cast<u64>(samples_));
    for (i64 k = 0; k < part.count; ++k)
      ids[k] = static_cast<i64>(feistel_at(network, static_cast<u64>(part.first + k)));
  }
}

}  // namespace rn
