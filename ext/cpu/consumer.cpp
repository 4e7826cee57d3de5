// The consumer's side of a feed: what is ordered, waiting for it, and taking it back. All but the
// waiting happens under Python's lock, one thread at a time.
#include <algorithm>

#include "clock.h"
#include "feed.h"

namespace rn {

void Feed::begin(const Course& course) {
  require_owner();
  course_ = course;
  given_ = course.next;
  last_ = -1;
  order_ahead();
}

// The last batch of an epoch takes the next epoch's order along, for a worker to make.
void Feed::order_ahead() {
  while (course_.next < course_.end && ring_->has_free()) {
    require_owner();
    const Part part = options_.batches.part(course_.next++);
    if (course_.next == course_.end) {
      std::lock_guard<std::mutex> hold(queue_guard_);
      following_ = std::move(course_.following);
      has_following_ = following_ != nullptr;
    }
    submit(ring_->fill(), part);
  }
}

int Feed::expect(int most_held) {
  require_owner();
  ring_->keep(most_held);
  order_ahead();
  if (ring_->filling().empty())
    throw std::runtime_error("all " + std::to_string(ring_->count()) +
                             " slots of the ring are held; release a batch first");
  return ring_->next();
}

int Feed::hand_out() {
  last_ = ring_->hand_out();
  bell_.hand_out();
  ++given_;
  order_ahead();
  return last_;
}

int Feed::unclaimed(i64 step) const {
  const bool is_lost = step == given_ - 1 && !ring_->held().empty();
  return is_lost && ring_->held().back() == last_ ? last_ : -1;
}

void Feed::release(int slot) {
  ring_->release(slot);
  if (!closed_) order_ahead();
}

void Feed::submit(int slot, const Part& part) {
  Slot& s = *slots_[slot];
  s.order = course_.order;
  s.part = part;
  s.ids.resize(static_cast<std::size_t>(part.count));
  s.epoch = course_.epoch;
  s.damages.clear();
  s.error.clear();
  s.error_position = -1;
  s.pairs.begin(part.count);
  s.missing = part.count;
  bell_.order();
  if (part.count == 0) {
    bell_.complete();  // nobody waits: this is the consumer
    return;
  }
  {
    std::lock_guard<std::mutex> hold(queue_guard_);
    s.cursor = 0;
    queue_.push_back(slot);
  }
  if (source_->is_native()) {
    const i64 items = (part.count + grain_ - 1) / grain_;
    for (i64 i = std::min<i64>(items, options_.workers); i > 0; --i) changed_->queue.notify_one();
    return;
  }
  s.order->fill(part, s.ids.data());
  Item item;
  while (take_item(&item)) {
    for (i64 position = item.begin; position < item.end; ++position) {
      const i64 id = slots_[item.slot]->ids[position];
      leave_errand({item.slot, position, id, id, 0});
    }
  }
}

void Feed::cancel() {
  course_.end = course_.next;
  std::vector<std::pair<int, i64>> taken;  // slot, samples
  {
    std::lock_guard<std::mutex> hold(queue_guard_);
    for (const int slot : queue_)
      taken.emplace_back(slot, static_cast<i64>(slots_[slot]->ids.size()) - slots_[slot]->cursor);
    queue_.clear();
  }
  {
    std::lock_guard<std::mutex> hold(errand_guard_);
    for (const Errand& errand : errands_) taken.emplace_back(errand.slot, 1);
    errands_.clear();
    errand_count_ = 0;
  }
  for (const auto& [slot, samples] : taken) settle(slot, samples);
}

Feed::Status Feed::wait(int slot, double seconds, Workbench& bench) {
  if (options_.workers == 0) return work(slot, seconds, bench);
  const Slot& s = *slots_[slot];
  if (s.missing == 0) return Status::READY;
  const auto start = Clock::now();
  const auto end = after(seconds);
  std::unique_lock<std::mutex> hold(ready_guard_);
  ++stats_.waits;
  const auto orphaned = [&] { return errand_count_ > 0 && !has_helpers_; };
  const auto is_over = [&] { return s.missing == 0 || orphaned() || closed_; };
  const bool is_patient = bell_.be_patient();
  if (is_patient) changed_->ready.wait_until(hold, start + Doorbell::PATIENCE, is_over);
  bell_.be_impatient();
  changed_->ready.wait_until(hold, end, is_over);
  stats_.wait_nanoseconds += since(start);
  if (s.missing == 0) return Status::READY;
  return orphaned() ? Status::FOREIGN : Status::PENDING;
}

Feed::Status Feed::work(int slot, double seconds, Workbench& bench) {
  const auto start = Clock::now();
  const auto end = after(seconds);
  const Slot& s = *slots_[slot];
  bench.clock = 0;  // what this thread did since is not ours
  account(bench);
  Item item;
  while (s.missing > 0 && Clock::now() < end && take_item(&item))
    settle(item.slot, run_item(item, bench));
  account(bench);
  stats_.wait_nanoseconds += since(start);
  if (s.missing == 0) return Status::READY;
  return errand_count_ > 0 ? Status::FOREIGN : Status::PENDING;
}

bool Feed::is_clean(int slot) const {
  std::lock_guard<std::mutex> hold(slots_[slot]->guard);
  return slots_[slot]->damages.empty() && slots_[slot]->error_position < 0;
}

std::vector<Damage> Feed::damages(int slot) const {
  std::lock_guard<std::mutex> hold(slots_[slot]->guard);
  std::vector<Damage> found = slots_[slot]->damages;
  std::stable_sort(found.begin(), found.end(),
                   [](const Damage& a, const Damage& b) { return a.position < b.position; });
  return found;
}

std::string Feed::error(int slot, i64* id) const {
  std::lock_guard<std::mutex> hold(slots_[slot]->guard);
  *id = slots_[slot]->error_id;
  return slots_[slot]->error;
}

}  // namespace rn
