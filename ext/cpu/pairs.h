// The pairs of one batch that are to be mixed: which are complete, and their labels until then.
#pragma once
#include <atomic>
#include <vector>

#include "renaissance/mix.h"

namespace rn {

// How pairs of finished samples are mixed; classes 0: they are not.
struct MixOptions {
  MixSpec spec{};
  u64 key = 0;      // of the pairs' draws
  i64 classes = 0;  // width of a target
};

// Allocated once and used for one batch after the other.
class Pairs {
 public:
  void allocate(i64 batch) {
    labels_.resize(batch);
    done_ = std::vector<std::atomic<u8>>((batch + 1) / 2);
  }

  void begin(i64 samples) {
    samples_ = samples;
    for (std::atomic<u8>& done : done_) done.store(0, std::memory_order_relaxed);
  }

  i64& label(i64 position) { return labels_[position]; }

  bool is_alone(i64 position) const { return position % 2 == 0 && position + 1 == samples_; }

  // Called once for each finished sample. True for the later one of a pair and for a sample
  // without partner: all that belongs to the pair may now be read and written.
  bool completes(i64 position) {
    return is_alone(position) || done_[position / 2].fetch_add(1, std::memory_order_acq_rel) == 1;
  }

 private:
  i64 samples_ = 0;
  std::vector<i64> labels_;
  std::vector<std::atomic<u8>> done_;
};

}  // namespace rn
