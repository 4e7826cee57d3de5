// Just enough of CUDA to run our kernels on the host: a block is 256 threads that meet at barriers,
// blocks run one after the other. For tests of logic where there is no GPU; slow.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
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

inline thread_local dim3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

// All parties meet; the last one opens the gate for the next round.
class Barrier {
 public:
  void reset(int parties) { parties_ = parties, waiting_ = 0; }
  void wait() {
    const int round = round_.load();
    if (waiting_.fetch_add(1) + 1 == parties_) {
      waiting_ = 0;
      ++round_;
    } else {
      while (round_.load() == round) std::this_thread::yield();
    }
  }

 private:
  int parties_ = 0;
  std::atomic<int> waiting_{0}, round_{0};
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
  static std::mutex guard;
  std::lock_guard<std::mutex> hold(guard);
  const unsigned before = *place;
  *place = std::min(before, x);
  return before;
}

inline unsigned long long atomicAdd(std::uint64_t* place, unsigned long long x) {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(place)->fetch_add(x);
}
inline void __threadfence() {}

template <class Kernel>
void run_grid(int grid, int block, const Kernel& kernel) {
  gridDim.x = grid;
  blockDim.x = block;
  for (int b = 0; b < grid; ++b) {
    block_barrier.reset(block);
    for (Barrier& barrier : warp_barrier) barrier.reset(32);
    std::vector<std::thread> team;
    for (int t = 0; t < block; ++t) {
      team.emplace_back([=, &kernel] {
        threadIdx.x = t;
        blockIdx.x = b;
        kernel();
      });
    }
    for (std::thread& thread : team) thread.join();
  }
}
