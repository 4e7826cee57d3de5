// The team behind parallel_for: torch's OpenMP threads when they are there, else our own.
//
// torch's threads spin for a while after each of its operators. A second team would compete with
// them for the same processors, so we run on them through GOMP_parallel, the entry point that both
// libgomp and LLVM's runtime offer; nothing is linked, the symbol is looked up in the process.
// Rounding 65,536 numbers on two cores: 10 us by one thread, 7 by torch's, 25 by our own.
#include "parallel.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rn {
namespace {

// One call: shares 0 ... count-1, each run once by whoever takes it.
struct Job {
  const std::function<void(std::int64_t)>* share;
  std::int64_t count;
  std::atomic<std::int64_t> next{0};
  std::mutex guard;
  std::exception_ptr failed;

  void work() {
    for (std::int64_t i = next++; i < count; i = next++) {
      try {
        (*share)(i);
      } catch (...) {
        std::lock_guard<std::mutex> hold(guard);
        failed = std::current_exception();
      }
    }
  }
};

// Threads of our own, kept between calls. Used by one caller at a time; a second one works alone.
class Team {
 public:
  void run(Job& job, int members) {
    std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
    if (!mine) return job.work();
    while (static_cast<int>(threads_.size()) < members - 1) {
      threads_.emplace_back([this, id = static_cast<int>(threads_.size())] { serve(id); });
      threads_.back().detach();  // they sleep until the process ends
    }
    {
      std::lock_guard<std::mutex> hold(guard_);
      job_ = &job;
      wanted_ = left_ = members - 1;
      ++call_;
    }
    start_.notify_all();
    job.work();
    std::unique_lock<std::mutex> hold(guard_);
    done_.wait(hold, [this] { return left_ == 0; });
  }

 private:
  void serve(int id) {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> hold(guard_);
    for (;;) {
      start_.wait(hold, [&] { return call_ != seen; });
      seen = call_;
      if (id >= wanted_) continue;
      Job* job = job_;
      hold.unlock();
      job->work();
      hold.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_, guard_;
  std::condition_variable start_, done_;
  std::vector<std::thread> threads_;
  Job* job_ = nullptr;
  int wanted_ = 0, left_ = 0;
  std::uint64_t call_ = 0;
};

// A forked child has no threads but the one that forked: it gets a new team, and leaves OpenMP,
// which would wait for the lost ones, alone.
std::atomic<Team*> team{nullptr};
std::atomic<bool> is_forked{false};

void forget_threads() {
  team = nullptr;  // the parent's object is left as it is: its locks may be held for ever
  is_forked = true;
}

Team& own_team() {
  Team* found = team.load();
  if (found == nullptr) {
    Team* made = new Team;
    if (team.compare_exchange_strong(found, made)) return *made;
    delete made;
  }
  return *found;
}

using OpenMP = void (*)(void (*)(void*), void*, unsigned, unsigned);

OpenMP openmp() {
  static std::atomic<void*> known{nullptr};
  void* found = known.load(std::memory_order_relaxed);
  if (found == nullptr) {  // torch may be loaded later
    found = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    known = found;
  }
  return reinterpret_cast<OpenMP>(found);
}

void run_team(Job& job, int members) {
  static const int registered = pthread_atfork(nullptr, nullptr, forget_threads);
  (void)registered;
  const OpenMP parallel = is_forked ? nullptr : openmp();
  if (parallel != nullptr) {
    parallel([](void* data) { static_cast<Job*>(data)->work(); }, &job,
             static_cast<unsigned>(members), 0);
  } else {
    own_team().run(job, members);
  }
  if (job.failed) std::rethrow_exception(job.failed);
}

constexpr std::int64_t SHARES = 8;

int processors() {
  static const int count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return count;
}

}  // namespace

void parallel_for(std::int64_t count, std::int64_t grain, int threads, const Range& body) {
  if (count <= 0) return;
  if (threads <= 0) threads = processors();
  const std::int64_t pieces = (count + grain - 1) / grain;
  const std::int64_t members = std::min<std::int64_t>(threads, pieces);
  if (members <= 1) return body(0, count);
  // Several shares a member: one that is held up leaves its rest to the others.
  const std::int64_t shares = std::min(pieces, members * SHARES);
  const std::int64_t length = (pieces + shares - 1) / shares * grain;
  const std::function<void(std::int64_t)> share = [&](std::int64_t i) {
    const std::int64_t begin = i * length;
    if (begin < count) body(begin, std::min(begin + length, count));
  };
  Job job;
  job.share = &share;
  job.count = shares;
  run_team(job, static_cast<int>(members));
}

}  // namespace rn
