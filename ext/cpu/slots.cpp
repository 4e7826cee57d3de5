#include "slots.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace rn {

Slots::Slots(int count) : count_(count) {
  for (int slot = 0; slot < count; ++slot) free_.push_back(slot);
}

int Slots::fill() {
  if (free_.empty())
    throw std::runtime_error("all " + std::to_string(count_) +
                             " slots are in use; release a batch first");
  const int slot = free_.front();
  free_.pop_front();
  filling_.push_back(slot);
  return slot;
}

int Slots::next() const {
  if (filling_.empty()) throw std::runtime_error("no slot is being filled");
  return filling_.front();
}

int Slots::hand_out() {
  const int slot = next();
  filling_.pop_front();
  held_.push_back(slot);
  return slot;
}

void Slots::release(int slot) {
  const auto found = std::find(held_.begin(), held_.end(), slot);
  if (found == held_.end())
    throw std::runtime_error("slot " + std::to_string(slot) +
                             " is not held; it was released before or never taken");
  held_.erase(found);
  free_.push_back(slot);
}

void Slots::keep(int most_held) {
  while (static_cast<int>(held_.size()) > most_held) release(held_.front());
}

}  // namespace rn
