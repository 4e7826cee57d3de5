// Which samples a batch is made of: the order of an epoch, and a rank's part of each batch.
#pragma once
#include <atomic>

#include "renaissance/permutation.h"

namespace rn {

// Positions of an epoch: `count` of them from `first` on.
struct Part {
  i64 first, count;
};

// How the positions of an epoch are cut into batches, and those into the parts of ranks.
struct Batches {
  i64 samples, batch, unit;  // batch: over all ranks; unit: neighbours that stay on one rank
  i64 rank, world;

  // A batch of m units (the last may be short) is cut at units rank * m // world.
  Part part(i64 step) const;
};

// ids[i]: the sample at position i of a permutation of [0, n), by Fisher and Yates.
template <class Id>
void shuffle(u64 key, Id* ids, u64 n);

// The sample at every position of one epoch. Up to SHUFFLE_LIMIT samples it is a table, made by
// whoever asks first; nobody waits for another thread, so that a fork at any time does no harm.
class EpochOrder {
 public:
  EpochOrder(i64 samples, bool shuffles, u64 key)
      : samples_(samples), shuffles_(shuffles), key_(key) {}
  ~EpochOrder() { delete[] table_.load(); }
  EpochOrder(const EpochOrder&) = delete;
  EpochOrder& operator=(const EpochOrder&) = delete;

  // Makes the table if there is to be one and nobody has; std::bad_alloc.
  void prepare();
  bool is_prepared() const { return table_.load() != nullptr; }
  // The samples at these positions.
  void fill(const Part& part, i64* ids);

 private:
  const i64 samples_;
  const bool shuffles_;
  const u64 key_;
  std::atomic<u32*> table_{nullptr};
};

}  // namespace rn
