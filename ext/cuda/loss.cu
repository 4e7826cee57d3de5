// The loss of a classifier of few classes, its gradient, and the step's sums, in one launch.
//
// One block. Threads t below LANES take rows t, t + LANES, ... and go through their classes; then all
// threads share the elements of the gradient. Sums fold by halving in float64, so the bits depend on
// shapes alone. exp and log are the compiler's: equal on every GPU of one architecture, not on the
// host.
#include "fold.h"
#include "renaissance/convert.h"
#include "renaissance/scalars.h"

using namespace rn;

namespace {

// What the rows of a round leave for their gradients.
struct Softmax {
  float top[LANES], total[LANES];  // the largest logit; the sum of exp(z - top)
  i32 wanted[LANES];
};

struct RowLoss {
  float loss, correct;
};

// Loss and rank of a row; NaN in a logit is NaN in all.
__device__ __forceinline__ RowLoss row_loss(const void* z, i32 dtype, i64 begin, i32 classes,
                                            i32 wanted, float smoothing, Softmax& left) {
  float top = load_float(z, dtype, begin), total = 0.0f;
  bool is_nan = false;
  for (i32 c = 0; c < classes; ++c) {
    const float x = load_float(z, dtype, begin + c);
    top = x > top ? x : top;
    is_nan = is_nan || x != x;
  }
  is_nan = is_nan || wanted < 0;  // no class: the loss is a NaN, and the step is skipped
  const float goal = load_float(z, dtype, begin + (wanted < 0 ? 0 : wanted));
  float sum = 0.0f;
  i32 before = 0;
  for (i32 c = 0; c < classes; ++c) {
    const float x = load_float(z, dtype, begin + c);
    total = total + expf(x - top);
    sum = sum + (x - top);
    before += (x > goal) || (x == goal && c < wanted);
  }
  if (is_nan) total = top = float_of(0x7fc00000u);
  left.top[threadIdx.x] = top;
  left.total[threadIdx.x] = total;
  left.wanted[threadIdx.x] = wanted;
  const float flat = smoothing / static_cast<float>(classes);
  const float loss = logf(total) - (1.0f - smoothing) * (goal - top) - flat * sum;
  return {loss, !is_nan && before == 0 ? 1.0f : 0.0f};
}

// A class number as 32 bits; -1 where it is none.
__device__ __forceinline__ i32 label_of(i64 given, i32 classes) {
  return given >= 0 && given < classes ? static_cast<i32>(given) : -1;
}

// (softmax - smoothed target) * seed for class c of the round's row.
__device__ __forceinline__ float slope(float x, const Softmax& left, i32 row, i32 c, i32 classes,
                                       float smoothing, float seed) {
  const float share = expf(x - left.top[row]) / left.total[row];
  const float flat = smoothing / static_cast<float>(classes);
  const float aim = (c == left.wanted[row] ? 1.0f - smoothing : 0.0f) + flat;
  return (share - aim) * seed;
}

}  // namespace

// z: logits (rows, classes), 16 bits; gradient: the same shape, or null in evaluation. `sums` (loss
// sum, weight, correct, counted) is added to; `loss` and `weight` are written as float32.
extern "C" __global__ void classify(const void* z, i32 dtype, const i64* target, u16* gradient,
                                    i32 rows, i32 classes, float smoothing, const Scalars* s,
                                    double* sums, float* loss, float* weight) {
  __shared__ double loss_lane[LANES], correct_lane[LANES];
  __shared__ Softmax left;
  const i32 thread = threadIdx.x;
  const float seed = s->seed_scale;
  double losses = 0.0, correct = 0.0;
  for (i32 first = 0; first < rows; first += LANES) {
    const i32 count = rows - first < LANES ? rows - first : LANES;
    const i64 begin = static_cast<i64>(first) * classes;
    if (thread < count) {
      const RowLoss found =
          row_loss(z, dtype, begin + static_cast<i64>(thread) * classes, classes,
                   label_of(target[first + thread], classes), smoothing, left);
      losses = losses + static_cast<double>(found.loss);
      correct = correct + static_cast<double>(found.correct);
    }
    __syncthreads();
    for (i32 k = thread; gradient != nullptr && k < count * classes; k += blockDim.x) {
      const i32 row = k / classes;
      const float x = load_float(z, dtype, begin + k);
      const float g = slope(x, left, row, k - row * classes, classes, smoothing, seed);
      gradient[begin + k] = dtype == BFLOAT16 ? to_bfloat16(g) : to_float16(g);
    }
    __syncthreads();
  }
  if (thread < LANES) {
    loss_lane[thread] = losses;
    correct_lane[thread] = correct;
  }
  __syncthreads();
  if (thread >= 32) return;
  losses = fold_warp(loss_lane, thread);
  correct = fold_warp(correct_lane, thread);
  if (thread != 0) return;
  sums[0] = sums[0] + losses;
  sums[1] = sums[1] + static_cast<double>(rows);
  sums[2] = sums[2] + correct;
  sums[3] = sums[3] + static_cast<double>(rows);
  *loss = static_cast<float>(losses);
  *weight = static_cast<float>(rows);
}
