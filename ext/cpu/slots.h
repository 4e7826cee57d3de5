// Where each slot of the ring is: free -> filling (ordered from the workers) -> held (handed to the
// consumer) -> free. One thread at a time moves them: whoever holds Python's lock.
#pragma once
#include <deque>

namespace rn {

class Slots {
 public:
  explicit Slots(int count);

  int count() const { return count_; }
  bool has_free() const { return !free_.empty(); }
  const std::deque<int>& filling() const { return filling_; }  // oldest first, as `held`
  const std::deque<int>& held() const { return held_; }

  // std::runtime_error: a step that the order above does not allow.
  int fill();               // takes a free slot for the next batch
  int next() const;         // the slot whose batch comes next
  int hand_out();           // the next batch goes to the consumer
  void release(int slot);   // the consumer is done with it
  void keep(int most_held); // releases the oldest until no more than these are held

 private:
  int count_;
  std::deque<int> free_, filling_, held_;
};

}  // namespace rn
