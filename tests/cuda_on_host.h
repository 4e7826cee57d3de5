// Just enough of CUDA to run our kernels on the host: a block is 256 threads that meet at barriers,
// blocks run one after the other. For tests of logic where there is no GPU; slow.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct dim3 { unsigned x; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

// The threads of a block take turns in one thread of the host: each runs until it waits at a
// barrier, from the first to the last in one round and from the last to the first in the next; the
// next block begins the other way round. So a barrier that is missing shows, whichever of two
// threads reads what the other writes.
class Turns {
 public:
  static constexpr std::size_t kStack = 256 * 1024;

  void run(int threads, std::function<void()> body) {
    body_ = std::move(body);
    while (static_cast<int>(stacks_.size()) < threads) stacks_.emplace_back(new char[kStack]);
    contexts_.resize(threads);
    done_.assign(threads, false);
    left_ = threads;
    for (int t = 0; t < threads; ++t) {
      getcontext(&contexts_[t]);
      contexts_[t].uc_stack.ss_sp = stacks_[t].get();
      contexts_[t].uc_stack.ss_size = kStack;
      contexts_[t].uc_link = &scheduler_;
      makecontext(&contexts_[t], &Turns::begin, 0);
    }
    is_forward_ = !is_forward_;
    for (bool forward = is_forward_; left_ > 0; forward = !forward) {
      for (int k = 0; k < threads; ++k) {
        now_ = forward ? k : threads - 1 - k;
        if (done_[now_]) continue;
        threadIdx.x = now_;
        swapcontext(&scheduler_, &contexts_[now_]);
      }
    }
  }

  void pass() { swapcontext(&contexts_[now_], &scheduler_); }

 private:
  static void begin();

  std::function<void()> body_;
  std::vector<std::unique_ptr<char[]>> stacks_;
  std::vector<ucontext_t> contexts_;
  std::vector<bool> done_;
  ucontext_t scheduler_;
  int now_ = 0, left_ = 0;
  bool is_forward_ = false;
};

inline Turns turns;

inline void Turns::begin() {
  turns.body_();
  turns.done_[turns.now_] = true;
  --turns.left_;
}

// All parties meet; the last one opens the gate for the next round.
class Barrier {
 public:
  void reset(int parties) { parties_ = parties, waiting_ = 0; }
  void wait() {
    const int round = round_;
    if (++waiting_ == parties_) {
      waiting_ = 0;
      ++round_;
    }
    do turns.pass();
    while (round_ == round);
  }

 private:
  int parties_ = 0, waiting_ = 0, round_ = 0;
};

inline Barrier block_barrier, warp_barrier[32];
inline void __syncthreads() { block_barrier.wait(); }

template <class T>
T __shfl_down_sync(unsigned, T x, int by) {
  static T held[32][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  held[warp][lane] = x;
  warp_barrier[warp].wait();
  const T found = lane + by < 32 ? held[warp][lane + by] : x;
  warp_barrier[warp].wait();
  return found;
}

inline unsigned atomicMin(unsigned* place, unsigned x) {
  const unsigned before = *place;
  *place = std::min(before, x);
  return before;
}

inline unsigned long long atomicAdd(std::uint64_t* place, unsigned long long x) {
  const unsigned long long before = *place;
  *place += x;
  return before;
}
inline void __threadfence() {}

template <class Kernel>
void run_grid(int grid, int block, const Kernel& kernel) {
  gridDim.x = grid;
  blockDim.x = block;
  for (int b = 0; b < grid; ++b) {
    block_barrier.reset(block);
    for (Barrier& barrier : warp_barrier) barrier.reset(32);
    blockIdx.x = b;
    turns.run(block, kernel);
  }
}
