// Dropout on the device, forward and backward alike: the mask is drawn again, never stored.
#include "renaissance/dropout.h"

using namespace rn;

extern "C" __global__ void dropout(const void* x, void* y, i64 count, i64 inner, i64 channels,
                                   i32 dtype, const Scalars* scalars, u64 layer, u32 threshold,
                                   float scale) {
  const DropoutLayout layout{count, inner, channels, inner / channels};
  const DropoutDraw draw = dropout_draw(*scalars, layer, threshold, scale);
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float factor = dropout_factor(draw, layout, i);
    const float value = factor == 0.0f ? 0.0f : load_float(x, dtype, i) * factor;
    if (dtype == FLOAT32) {
      static_cast<float*>(y)[i] = value;
    } else {
      static_cast<u16*>(y)[i] = dtype == BFLOAT16 ? to_bfloat16(value) : to_float16(value);
    }
  }
}
