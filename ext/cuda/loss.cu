// The loss of a classifier of few classes, its gradient, and the step's sums, in one launch.
//
// One block; thread t takes rows t, t + 256, ... and folds the classes of a row in registers. Sums
// fold by halving in float64, so the bits depend on shapes alone. exp and log are the compiler's:
// equal on every GPU of one architecture, not on the host.
#include "fold.h"
#include "renaissance/convert.h"
#include "renaissance/scalars.h"

using namespace rn;

namespace {

struct RowLoss {
  float loss, correct;
};

// Loss and rank of a row, and (softmax - smoothed target) * seed to `gradient`.
__device__ __forceinline__ RowLoss row_loss(const void* z, i32 dtype, i64 begin, i32 classes,
                                            i32 wanted, float smoothing, float seed, u16* gradient) {
  float top = load_float(z, dtype, begin), total = 0.0f;
  bool is_nan = false;
  for (i32 c = 0; c < classes; ++c) {
    const float x = load_float(z, dtype, begin + c);
    top = x > top ? x : top;
    is_nan = is_nan || x != x;
  }
  const float goal = load_float(z, dtype, begin + wanted);
  float sum = 0.0f;
  i32 before = 0;
  for (i32 c = 0; c < classes; ++c) {
    const float x = load_float(z, dtype, begin + c);
    total = total + expf(x - top);
    sum = sum + (x - top);
    before += (x > goal) || (x == goal && c < wanted);
  }
  if (is_nan) total = top = float_of(0x7fc00000u);
  const float flat = smoothing / static_cast<float>(classes);
  if (gradient != nullptr) {
    for (i32 c = 0; c < classes; ++c) {
      const float share = expf(load_float(z, dtype, begin + c) - top) / total;
      const float aim = (c == wanted ? 1.0f - smoothing : 0.0f) + flat;
      const float g = (share - aim) * seed;
      gradient[begin + c] = dtype == BFLOAT16 ? to_bfloat16(g) : to_float16(g);
    }
  }
  const float log_total = logf(total);
  const float loss = log_total - (1.0f - smoothing) * (goal - top) - flat * sum;
  return {loss, !is_nan && before == 0 ? 1.0f : 0.0f};
}

}  // namespace

// z: logits (rows, classes), 16 bits; gradient: the same shape, or null in evaluation. `sums` (loss
// sum, weight, correct, counted) is added to; `loss` and `weight` are written as float32.
extern "C" __global__ void classify(const void* z, i32 dtype, const i64* target, u16* gradient,
                                    i32 rows, i32 classes, float smoothing, const Scalars* s,
                                    double* sums, float* loss, float* weight) {
  __shared__ double loss_lane[LANES], correct_lane[LANES];
  double losses = 0.0, correct = 0.0;
  for (i32 row = threadIdx.x; row < rows; row += LANES) {
    const RowLoss found =
        row_loss(z, dtype, static_cast<i64>(row) * classes, classes,
                 static_cast<i32>(target[row]), smoothing, s->seed_scale, gradient);
    losses = losses + static_cast<double>(found.loss);
    correct = correct + static_cast<double>(found.correct);
  }
  loss_lane[threadIdx.x] = losses;
  correct_lane[threadIdx.x] = correct;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  losses = fold_warp(loss_lane, threadIdx.x);
  correct = fold_warp(correct_lane, threadIdx.x);
  if (threadIdx.x != 0) return;
  sums[0] = sums[0] + losses;
  sums[1] = sums[1] + static_cast<double>(rows);
  sums[2] = sums[2] + correct;
  sums[3] = sums[3] + static_cast<double>(rows);
  *loss = static_cast<float>(losses);
  *weight = static_cast<float>(rows);
}
