// What a feed leaves to Python, and how it comes back.
#include <chrono>

#include "feed.h"

namespace rn {

void Feed::leave_errand(const Errand& errand) {
  {
    std::lock_guard<std::mutex> hold(errand_guard_);
    errands_.push_back(errand);
    ++errand_count_;
  }
  changed_->errand.notify_one();
  if (has_helpers_) return;
  {
    std::lock_guard<std::mutex> turn(ready_guard_);
  }
  changed_->ready.notify_all();
}

bool Feed::take_errand(double seconds, Errand* errand) {
  std::unique_lock<std::mutex> hold(errand_guard_);
  if (seconds > 0)
    changed_->errand.wait_for(hold, std::chrono::duration<double>(seconds),
                             [&] { return closed_ || !errands_.empty(); });
  if (closed_ || errands_.empty()) return false;
  *errand = errands_.front();
  errands_.pop_front();
  --errand_count_;
  return true;
}

void Feed::finish(const Errand& errand) {
  pair_up(errand.slot, errand.position);
  stats_.samples += 1;
  settle(errand.slot, 1);
}

void Feed::finish_picture(const Errand& errand, const Image& image, const void* label,
                          Workbench& bench) {
  bench.clock = 0;
  account(bench);
  bench.image = image;
  const bool good = render(errand, bench);
  if (good) put_label(errand, label);
  account(bench);
  if (good) {
    finish(errand);
  } else {
    fail(errand, bench.problem, bench);
  }
}

void Feed::finish_row(const Errand& errand, const void* row, const void* label) {
  put_row(errand, row);
  put_label(errand, label);
  finish(errand);
}

void Feed::finish_jpeg(const Errand& errand, const u8* data, std::size_t size, int channels,
                       const void* label, Workbench& bench) {
  bench.clock = 0;
  account(bench);
  const Want want{program_, key_of(errand, bench)};
  const bool good = decode_picture(data, size, channels, want, bench) == Fetched::PICTURE &&
                    render(errand, bench);
  if (good) put_label(errand, label);
  account(bench);
  if (good) {
    finish(errand);
  } else {
    fail(errand, bench.problem, bench);
  }
}

void Feed::fail(const Errand& errand, const std::string& text, Workbench& bench) {
  Errand next = errand;
  if (give_up(&next, text) || pursue(next, bench)) finish(next);
}

}  // namespace rn
