#include "parallel.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rn {

void parallel_for(std::int64_t count, std::int64_t grain, int threads, const Range& body) {
  if (count <= 0) return;
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::int64_t pieces = (count + grain - 1) / grain;
  const std::int64_t workers = std::min<std::int64_t>(threads, pieces);
  if (workers <= 1) {
    body(0, count);
    return;
  }
  const std::int64_t share = (pieces + workers - 1) / workers * grain;
  std::exception_ptr failed;
  std::mutex guard;
  auto run = [&](std::int64_t begin) {
    try {
      body(begin, std::min(begin + share, count));
    } catch (...) {
      std::lock_guard<std::mutex> hold(guard);
      failed = std::current_exception();
    }
  };
  std::vector<std::thread> team;
  for (std::int64_t begin = share; begin < count; begin += share) team.emplace_back(run, begin);
  run(0);
  for (auto& thread : team) thread.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace rn
