// Fills: element i of a draw is the same number as on the host.
#include "renaissance/normal.h"

using namespace rn;

extern "C" __global__ void fill_uniform(float* out, i64 count, u64 seed, u64 offset) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = unit(philox(seed, offset + i).word[0]);
}

extern "C" __global__ void fill_normal(float* out, i64 count, u64 seed, u64 offset) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (2 * i >= count) return;
  float a, b;
  normal_pair(philox(seed, offset + i), &a, &b);
  if (2 * i + 1 < count) {
    reinterpret_cast<float2*>(out)[i] = make_float2(a, b);
  } else {
    out[2 * i] = a;
  }
}

extern "C" __global__ void fill_trunc_normal(float* out, i64 count, u64 seed, u64 offset) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = trunc_normal(seed, offset + i);
}
