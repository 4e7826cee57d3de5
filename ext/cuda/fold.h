// Sums over the lanes of a block: the pairs that fold_lanes (norms.h) adds, with one barrier.
#pragma once
#include "renaissance/norms.h"

namespace rn {

// The first warp's part of fold_lanes: three halvings in registers, five between its threads. The
// total is in thread 0.
template <class Number>
__device__ __forceinline__ Number fold_warp(const Number* lane, int thread) {
  Number x[LANES / 32];
#pragma unroll
  for (int k = 0; k < LANES / 32; ++k) x[k] = lane[thread + 32 * k];
#pragma unroll
  for (int half = LANES / 64; half > 0; half /= 2) {
#pragma unroll
    for (int k = 0; k < half; ++k) x[k] = x[k] + x[k + half];
  }
  Number sum = x[0];
#pragma unroll
  for (int half = 16; half > 0; half /= 2) sum = sum + __shfl_down_sync(0xffffffffu, sum, half);
  return sum;
}

// The lanes of a block, folded; the total is in thread 0. `lane` may be written again after the next
// barrier.
template <class Number>
__device__ __forceinline__ Number fold_block(Number* lane, Number mine) {
  lane[threadIdx.x] = mine;
  __syncthreads();
  return threadIdx.x < 32 ? fold_warp(lane, threadIdx.x) : mine;
}

}  // namespace rn
