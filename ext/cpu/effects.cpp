#include "effects.h"

#include <algorithm>
#include <cstring>

namespace rn {
namespace {

ColorStep step_of(ColorKind kind, float factor) {
  ColorStep step;
  step.kind = kind;
  step.factor = factor;
  return step;
}

void contrast(Canvas& canvas, float factor) {
  ColorStep step = step_of(COLOR_BLEND, factor);
  step.other = canvas.gray_mean();
  canvas.color(step);
}

// Turns of either sign as sixths of a circle from 0 to 6.
float sixths_of(float turns) { return (turns < 0.0f ? turns + 1.0f : turns) * 6.0f; }

// Stretches every channel to 0-255; a channel of one value stays.
void autocontrast(Canvas& canvas) {
  const float* planes = canvas.floats();
  const int h = canvas.height(), w = canvas.width(), channels = canvas.channels();
  ColorStep step = step_of(COLOR_STRETCH, 0.0f);
  for (int c = 0; c < channels; ++c) {
    float low = planes[c * w], high = low;
    for (int y = 0; y < h; ++y)
      color_kernels().extremes(planes + (i64(y) * channels + c) * w, w, &low, &high);
    step.low[c] = high > low ? low : 0.0f;
    step.gain[c] = high > low ? TOP_LEVEL / (high - low) : 1.0f;
  }
  canvas.color(step);
}

// torchvision's equalize of one channel: levels by the histogram's running sum.
void equalizing_table(const int* histogram, float* table) {
  i64 total = 0;
  int last = 0;
  for (int level = 0; level < 256; ++level) {
    total += histogram[level];
    last = histogram[level] ? histogram[level] : last;
  }
  const i64 step = (total - last) / 255;
  i64 below = 0;
  for (int level = 0; level < 256; ++level) {
    table[level] = static_cast<float>(step ? std::min<i64>((below + step / 2) / step, 255) : level);
    below += histogram[level];
  }
}

void equalize(Canvas& canvas) {
  const float* planes = canvas.floats();
  const int h = canvas.height(), w = canvas.width(), channels = canvas.channels();
  float* table = canvas.scratch().take<float>(256 * channels);
  int* histogram = canvas.scratch().take<int>(256);
  for (int c = 0; c < channels; ++c) {
    std::fill(histogram, histogram + 256, 0);
    for (int y = 0; y < h; ++y) {
      const float* row = planes + (i64(y) * channels + c) * w;
      for (int x = 0; x < w; ++x) ++histogram[static_cast<int>(round_even(in_levels(row[x])))];
    }
    equalizing_table(histogram, table + 256 * c);
  }
  ColorStep step = step_of(COLOR_TABLE, 0.0f);
  step.table = table;
  canvas.color(step);
}

// Blends with the mean of 3x3 neighbours, the middle counting five times; the border stays.
void sharpen(Canvas& canvas, float factor) {
  const int h = canvas.height(), w = canvas.width(), channels = canvas.channels();
  if (h <= 2 || w <= 2) return;
  const float* from = canvas.floats();
  const i64 line = i64(channels) * w;
  float* to = canvas.scratch().take<float>(h * line);
  const float rest = 1.0f - factor, outer = 1.0f / 13.0f, inner = 5.0f / 13.0f;
  std::memcpy(to, from, h * line * sizeof(float));
  for (int y = 1; y < h - 1; ++y)
    for (int c = 0; c < channels; ++c) {
      const float* mid = from + y * line + i64(c) * w;
      const float* up = mid - line;
      const float* down = mid + line;
      float* out = to + y * line + i64(c) * w;
      for (int x = 1; x < w - 1; ++x) {
        const float ring = (((up[x - 1] + up[x]) + (up[x + 1] + mid[x - 1])) +
                            ((mid[x + 1] + down[x - 1]) + (down[x] + down[x + 1])));
        out[x] = blended(mid[x], ring * outer + mid[x] * inner, factor, rest);
      }
    }
  canvas.replace(to, h, w);
}

// Gaussian weights for `size` taps around the middle one, sum 1.
void gaussian(int size, float sigma, float* weight) {
  float total = 0.0f;
  for (int k = 0; k < size; ++k) {
    const float z = static_cast<float>(k - size / 2) / sigma;
    const float exponent = -0.5f * z * z;
    weight[k] = exponent < -80.0f ? 0.0f : exp_of(exponent);
    total = total + weight[k];
  }
  for (int k = 0; k < size; ++k) weight[k] = weight[k] / total;
}

int reflected(int place, int size) {
  place = place < 0 ? -place : place;
  return place >= size ? 2 * (size - 1) - place : place;
}

// One row of a separable blur: `line` is the row blended vertically, one plane at a time.
void blur_line(const float* line, int width, const float* weight, int taps, float* padded,
               float* out) {
  const int reach = taps / 2;
  for (int x = -reach; x < width + reach; ++x) padded[x + reach] = line[reflected(x, width)];
  const float* shifted[MAX_BLUR];
  for (int k = 0; k < taps; ++k) shifted[k] = padded + k;
  row_kernels().blend_floats(shifted, weight, taps, width, out);
}

// One of TrivialAugment's affine operations; they sample with their own `flags` and fill.
Affine automatic_affine(const AutoDraw& drawn, int height, int width) {
  const float m = drawn.magnitude;
  // Shears leave the first row or column's outer edge where it is.
  switch (drawn.kind) {
    case AUTO_SHEAR_X: return {{1.0f, m, m * (0.5f * static_cast<float>(height)), 0.0f, 1.0f, 0.0f}};
    case AUTO_SHEAR_Y: return {{1.0f, 0.0f, 0.0f, m, 1.0f, m * (0.5f * static_cast<float>(width))}};
    case AUTO_TRANSLATE_X: return {{1.0f, 0.0f, -m, 0.0f, 1.0f, 0.0f}};
    case AUTO_TRANSLATE_Y: return {{1.0f, 0.0f, 0.0f, 0.0f, 1.0f, -m}};
    default: return affine_of({m, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f}, AFFINE_COUNTER);
  }
}

void posterize(Canvas& canvas, int bits) {
  ColorStep step = step_of(COLOR_POSTERIZE, 0.0f);
  step.mask = 256u - (1u << (8 - bits));
  canvas.color(step);
}

void automatic_color(Canvas& canvas, const AutoDraw& drawn) {
  const float factor = 1.0f + drawn.magnitude;
  switch (drawn.kind) {
    case AUTO_BRIGHTNESS: return canvas.color(step_of(COLOR_BRIGHTNESS, factor));
    case AUTO_COLOR: return canvas.color(step_of(COLOR_SATURATION, factor));
    case AUTO_CONTRAST: return contrast(canvas, factor);
    case AUTO_SHARPNESS: return sharpen(canvas, factor);
    case AUTO_POSTERIZE: return posterize(canvas, static_cast<int>(drawn.magnitude));
    case AUTO_SOLARIZE: return canvas.color(step_of(COLOR_SOLARIZE, drawn.magnitude));
    case AUTO_AUTOCONTRAST: return autocontrast(canvas);
    case AUTO_EQUALIZE: return equalize(canvas);
    default: return;
  }
}

}  // namespace

void jitter(Canvas& canvas, const Operation& op) {
  const JitterDraw drawn = draw_jitter(op, canvas.who());
  for (const i32 part : drawn.order) {
    const float factor = drawn.factor[part];
    if (!(op.flags & (1u << part))) continue;
    switch (part) {
      case 0: canvas.color(step_of(COLOR_BRIGHTNESS, factor)); break;
      case 1: contrast(canvas, factor); break;
      case 2: canvas.color(step_of(COLOR_SATURATION, factor)); break;
      default: canvas.color(step_of(COLOR_HUE, sixths_of(factor)));
    }
  }
}

void grayscale(Canvas& canvas, const Operation& op) {
  if (draw_flip(op, canvas.who())) canvas.color(step_of(COLOR_GRAYSCALE, 0.0f));
}

void random_autocontrast(Canvas& canvas, const Operation& op) {
  if (draw_flip(op, canvas.who())) autocontrast(canvas);
}

void blur(Canvas& canvas, const Operation& op) {
  const float sigma = draw_sigma(op, canvas.who());
  const int taps_x = op.size[0], taps_y = op.size[1];
  const int h = canvas.height(), w = canvas.width();
  if (taps_x / 2 >= w || taps_y / 2 >= h)
    throw PictureError("a picture of " + std::to_string(h) + "x" + std::to_string(w) +
                       " is too small for a blur of " + std::to_string(taps_y) + "x" +
                       std::to_string(taps_x) + " pixels");
  const float* from = canvas.floats();
  const i64 line = i64(canvas.channels()) * w;
  Scratch& scratch = canvas.scratch();
  float* to = scratch.take<float>(h * line);
  float* blended_rows = scratch.take<float>(line);
  float* padded = scratch.take<float>(w + taps_x);
  float weight_x[MAX_BLUR], weight_y[MAX_BLUR];
  gaussian(taps_x, sigma, weight_x);
  gaussian(taps_y, sigma, weight_y);
  const float* rows[MAX_BLUR];
  for (int y = 0; y < h; ++y) {
    for (int k = 0; k < taps_y; ++k) rows[k] = from + reflected(y + k - taps_y / 2, h) * line;
    row_kernels().blend_floats(rows, weight_y, taps_y, static_cast<int>(line), blended_rows);
    for (int c = 0; c < canvas.channels(); ++c)
      blur_line(blended_rows + i64(c) * w, w, weight_x, taps_x, padded, to + y * line + i64(c) * w);
  }
  canvas.replace(to, h, w);
}

void automatic(Canvas& canvas, const Operation& op, int index) {
  const int choices = op.kind == OP_TRIVIAL ? 1 : op.size[1];
  for (int choice = 0; choice < choices; ++choice) {
    const int h = canvas.height(), w = canvas.width();
    const AutoDraw drawn = draw_auto(op, canvas.who(), choice, h, w);
    if (drawn.kind >= AUTO_SHEAR_X && drawn.kind <= AUTO_ROTATE)
      canvas.affine(automatic_affine(drawn, h, w), op.flags, index);
    else
      automatic_color(canvas, drawn);
  }
}

}  // namespace rn
