// When a consumer that waits for its batch is woken.
//
// Waking a thread takes the processor as long as a dozen small pictures. Where batches follow each
// other faster than that is worth, the consumer sleeps on until two are there: as many batches in
// the same time, half as many wake-ups. It is never kept for longer than PATIENCE.
#pragma once
#include <atomic>
#include <chrono>

#include "clock.h"

namespace rn {

class Doorbell {
 public:
  static constexpr std::chrono::milliseconds BRISK{1}, PATIENCE{2};

  // A batch was ordered; one was handed to the consumer.
  void order() { ++open_; }
  void hand_out() { --there_; }

  // A batch is complete. True: a consumer that waits has to be woken.
  bool complete() {
    const i64 now = Clock::now().time_since_epoch().count();
    const bool is_brisk = Clock::duration(now - last_.exchange(now)) < BRISK;
    is_brisk_ = is_brisk;
    const i64 there = ++there_, open = --open_;
    return !is_patient_ || !is_brisk || there > 1 || open == 0;
  }

  // The consumer is about to wait and looks whether its batch is there only after this. True: it
  // waits for no longer than PATIENCE, and once more after `be_impatient`.
  bool be_patient() { return is_patient_ = is_brisk_.load(); }
  void be_impatient() { is_patient_ = false; }

 private:
  std::atomic<i64> open_{0};   // batches that are being made
  std::atomic<i64> there_{0};  // complete, and not with the consumer yet
  std::atomic<i64> last_{0};   // when the last one was completed, in ticks of the clock
  std::atomic<bool> is_brisk_{false}, is_patient_{false};
};

}  // namespace rn
