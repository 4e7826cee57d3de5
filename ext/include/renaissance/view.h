// Where an output pixel comes from: index maps along one axis, and affine maps of both.
#pragma once
#include "sampling.h"

namespace rn {

enum StepKind : i32 { STEP_SHIFT = 0, STEP_FLIP = 1, STEP_PAD = 2 };

// One index map along one axis, read backwards: from a coordinate after it to one before it.
struct AxisStep {
  i32 kind;
  i32 offset;     // shift: first kept coordinate; pad: width of the front border
  i32 size;       // number of coordinates before the map
  i32 mode;       // PadMode
  i32 operation;  // whose fill applies outside, for PAD_CONSTANT
};

// The base coordinate of `place`, or -1 - k where operation k fills.
RN_HD i32 resolve(const AxisStep* steps, i32 count, i32 place) {
  for (i32 k = count - 1; k >= 0; --k) {
    const AxisStep& step = steps[k];
    if (step.kind == STEP_FLIP) {
      place = step.size - 1 - place;
    } else if (step.kind == STEP_SHIFT) {
      place += step.offset;
    } else {
      place -= step.offset;
      const i32 last = step.size - 1;
      if (place < 0 || place > last) {
        if (step.mode == PAD_CONSTANT) return -1 - step.operation;
        if (step.mode == PAD_EDGE)
          place = place < 0 ? 0 : last;
        else if (step.mode == PAD_REFLECT)
          place = place < 0 ? -place : 2 * last - place;
        else
          place = place < 0 ? -1 - place : 2 * last + 1 - place;
      }
    }
  }
  return place;
}

// Source of an output pixel: x = m0 X + m1 Y + m2, y = m3 X + m4 Y + m5, all from the centre.
struct Affine {
  float m[6];
};

// The inverse map of torchvision's affine: rotate, scale and shear about the centre, then shift.
RN_HD Affine affine_of(const AffineDraw& drawn, u32 flags) {
  float sin_a, cos_a, sin_b, cos_b, sin_x, cos_x, sin_y, cos_y;
  const float angle = flags & AFFINE_COUNTER ? -drawn.angle : drawn.angle;
  sincos_degrees(angle, &sin_a, &cos_a);
  Affine out;
  if (flags & AFFINE_DRAWS_SHEAR) {
    sincos_degrees(angle - drawn.shear_y, &sin_b, &cos_b);
    sincos_degrees(drawn.shear_x, &sin_x, &cos_x);
    sincos_degrees(drawn.shear_y, &sin_y, &cos_y);
    const float tangent = sin_x / cos_x;
    const float a = cos_b / cos_y;
    const float b = -(a * tangent) - sin_a;
    const float c = sin_b / cos_y;
    const float d = cos_a - c * tangent;
    out = {{d / drawn.scale, -b / drawn.scale, 0.0f, -c / drawn.scale, a / drawn.scale, 0.0f}};
  } else {
    const float cosine = cos_a / drawn.scale, sine = sin_a / drawn.scale;
    out = {{cosine, sine, 0.0f, -sine, cosine, 0.0f}};
  }
  out.m[2] = -(out.m[0] * drawn.shift_x + out.m[1] * drawn.shift_y);
  out.m[5] = -(out.m[3] * drawn.shift_x + out.m[4] * drawn.shift_y);
  return out;
}

// First `before`, then `after`, as one inverse map.
RN_HD Affine joined(const Affine& before, const Affine& after) {
  const float* p = before.m;
  const float* q = after.m;
  return {{p[0] * q[0] + p[1] * q[3], p[0] * q[1] + p[1] * q[4], (p[0] * q[2] + p[1] * q[5]) + p[2],
           p[3] * q[0] + p[4] * q[3], p[3] * q[1] + p[4] * q[4], (p[3] * q[2] + p[4] * q[5]) + p[5]}};
}

// The map along one output row: source x = ax X + bx, y = ay X + by, in pixels from the first.
struct RowMap {
  float ax, bx, ay, by;
};

RN_HD RowMap row_map(const Affine& affine, i32 row, i32 height, i32 width) {
  const float cx = static_cast<float>(width - 1) * 0.5f;
  const float cy = static_cast<float>(height - 1) * 0.5f;
  const float y = static_cast<float>(row) - cy;
  return {affine.m[0], affine.m[1] * y + (affine.m[2] + cx), affine.m[3],
          affine.m[4] * y + (affine.m[5] + cy)};
}

// A coordinate kept within one pixel of the picture: beyond it everything is fill.
RN_HD float within(float coordinate, float size) {
  coordinate = coordinate < -1.0f ? -1.0f : coordinate;
  return coordinate > size ? size : coordinate;
}

// Where one pixel of a row comes from: its upper left neighbour and how far beyond it; for
// `nearest` that neighbour alone.
struct Place {
  i32 top, left;
  float fy, fx;
};

RN_HD Place place_of(const RowMap& map, i32 column, i32 height, i32 width, bool nearest) {
  const float x = static_cast<float>(column) - static_cast<float>(width - 1) * 0.5f;
  const float sx = within(map.ax * x + map.bx, static_cast<float>(width));
  const float sy = within(map.ay * x + map.by, static_cast<float>(height));
  const float left = nearest ? round_even(sx) : floor_of(sx);
  const float top = nearest ? round_even(sy) : floor_of(sy);
  return {static_cast<i32>(top), static_cast<i32>(left), sy - top, sx - left};
}

RN_HD float bilinear(float v00, float v01, float v10, float v11, float fx, float fy) {
  const float top = v00 + (v01 - v00) * fx;
  const float bottom = v10 + (v11 - v10) * fx;
  return top + (bottom - top) * fy;
}

}  // namespace rn
