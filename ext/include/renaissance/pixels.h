// What one output element is, computed backwards through a program of a single pass.
//
// The host's workers pass over rows (ext/cpu/canvas.h); a GPU thread asks for one element at a time.
// Both use the functions of view.h and sampling.h in the same order, so bits are equal. A program has
// a single pass when it is index maps, then at most one (joined) affine map, then index maps without
// padding, normalisation and erasures; Python names the operation where it is not
// (Program.resident_reason).
#pragma once
#include "view.h"

namespace rn {

// Noise counts in blocks of its own, above those of the parameters.
constexpr u32 NOISE_DRAWS = 1u << 20;
constexpr int MAX_STEPS = 2 * MAX_OPERATIONS;

// Four standard normals: elements 4k ... 4k + 3 of an operation's noise, `element` one of them.
RN_HD void noise_block(const Operation& op, const SampleKey& who, u64 element, float* four) {
  const u32 draw = op.stream + NOISE_DRAWS + static_cast<u32>(element >> 2);
  const Block block = keyed(who.key, draw, who.epoch, who.id);
  normal_pair(block, four, four + 1);
  normal_pair({{block.word[2], block.word[3], 0u, 0u}}, four + 2, four + 3);
}

// One of them, from one pair: what a GPU's thread wants.
RN_HD float noise_at(const Operation& op, const SampleKey& who, u64 element) {
  const u32 draw = op.stream + NOISE_DRAWS + static_cast<u32>(element >> 2);
  Block block = keyed(who.key, draw, who.epoch, who.id);
  if (element & 2u) {
    block.word[0] = block.word[2];
    block.word[1] = block.word[3];
  }
  float first, second;
  normal_pair(block, &first, &second);
  return element & 1u ? second : first;
}

RN_HD bool is_noise(const Operation& op) { return op.kind == OP_ERASE && op.flags == ERASE_NORMAL; }

// What one operation drew for one sample.
struct Drawn {
  Box box;     // crop or erasure
  bool flips;
  Affine map;
};

// The size of the picture before operation `index`; every size is known in such a program.
RN_HD void size_before(const Operation* ops, i32 index, i32* height, i32* width) {
  for (i32 k = 0; k < index; ++k) {
    const Operation& op = ops[k];
    if (op.kind == OP_PAD) {
      *height += op.size[1] + op.size[3];
      *width += op.size[0] + op.size[2];
    } else if (op.kind == OP_PAD_TO) {
      *height += *height < op.size[0] ? 2 * (op.size[0] - *height) : 0;
      *width += *width < op.size[1] ? 2 * (op.size[1] - *width) : 0;
    } else if (op.kind == OP_RANDOM_CROP || op.kind == OP_CENTER_CROP) {
      *height = op.size[0];
      *width = op.size[1];
    }
  }
}

// Draws operation `index` for a picture that has this size before it.
RN_HD Drawn draw_operation(const Operation& op, const SampleKey& who, i32 height, i32 width) {
  Drawn drawn = {{0, 0, 0, 0}, false, {{1.0f, 0.0f, 0.0f, 0.0f, 1.0f, 0.0f}}};
  switch (op.kind) {
    case OP_RANDOM_CROP: drawn.box = draw_crop(op, who, height, width); break;
    case OP_FLIP_X:
    case OP_FLIP_Y: drawn.flips = draw_flip(op, who); break;
    case OP_AFFINE:
      drawn.map = affine_of(draw_affine(op, who, height, width), op.flags);
      break;
    case OP_ERASE: drawn.box = draw_erase(op, who, height, width); break;
    case OP_CUTOUT: drawn.box = draw_cutout(op, who, height, width); break;
    default: break;
  }
  return drawn;
}

// One sample's way through the program.
struct View {
  AxisStep rows[MAX_STEPS], columns[MAX_STEPS];  // index maps of the picture
  i32 row_steps, column_steps, height, width;    // and the size after them
  AxisStep late_rows[MAX_STEPS], late_columns[MAX_STEPS];  // index maps after the affine map
  i32 late_row_steps, late_column_steps;
  bool is_resampled;
  Affine map;
  i32 affine;     // operation whose fill and interpolation apply
  i32 normalize;  // operation, or -1
  Box erased[MAX_OPERATIONS];
  i32 eraser[MAX_OPERATIONS];  // operation of each erasure
  i32 erasures;
};

RN_HD void add_step(AxisStep* steps, i32* count, const AxisStep& step) { steps[(*count)++] = step; }

// Index maps of both axes, before or after the resampling; erasures move along.
RN_HD void add_crop(View& view, i32 top, i32 left, i32 height, i32 width) {
  const AxisStep y = {STEP_SHIFT, top, height, 0, 0}, x = {STEP_SHIFT, left, width, 0, 0};
  if (view.is_resampled) {
    add_step(view.late_rows, &view.late_row_steps, y);
    add_step(view.late_columns, &view.late_column_steps, x);
  } else {
    add_step(view.rows, &view.row_steps, y);
    add_step(view.columns, &view.column_steps, x);
  }
  for (i32 k = 0; k < view.erasures; ++k) {
    view.erased[k].top -= top;
    view.erased[k].left -= left;
  }
}

RN_HD void add_flip(View& view, bool along_x, i32 size) {
  const AxisStep step = {STEP_FLIP, 0, size, 0, 0};
  if (along_x)
    view.is_resampled ? add_step(view.late_columns, &view.late_column_steps, step)
                      : add_step(view.columns, &view.column_steps, step);
  else
    view.is_resampled ? add_step(view.late_rows, &view.late_row_steps, step)
                      : add_step(view.rows, &view.row_steps, step);
  for (i32 k = 0; k < view.erasures; ++k) {
    Box& box = view.erased[k];
    if (along_x)
      box.left = size - box.left - box.width;
    else
      box.top = size - box.top - box.height;
  }
}

RN_HD void add_pad(View& view, i32 top, i32 left, i32 height, i32 width, u32 mode, i32 operation) {
  add_step(view.rows, &view.row_steps, {STEP_PAD, top, height, static_cast<i32>(mode), operation});
  add_step(view.columns, &view.column_steps, {STEP_PAD, left, width, static_cast<i32>(mode), operation});
}

// Adds operation `index`, met at height x width, to the view.
RN_HD void add_operation(View& view, const Operation& op, i32 index, const Drawn& drawn, i32 height,
                         i32 width) {
  switch (op.kind) {
    case OP_PAD: add_pad(view, op.size[1], op.size[0], height, width, op.flags, index); break;
    case OP_PAD_TO: {
      const i32 y = op.size[0] > height ? op.size[0] - height : 0;
      const i32 x = op.size[1] > width ? op.size[1] - width : 0;
      add_pad(view, y, x, height, width, op.flags, index);
      break;
    }
    case OP_RANDOM_CROP: add_crop(view, drawn.box.top, drawn.box.left, op.size[0], op.size[1]); break;
    case OP_CENTER_CROP: {
      const i32 y = op.size[0] > height ? op.size[0] - height : 0;
      const i32 x = op.size[1] > width ? op.size[1] - width : 0;
      if (x || y) add_pad(view, y / 2, x / 2, height, width, PAD_CONSTANT, index);
      const Box box = center_crop(op, height + y, width + x);
      add_crop(view, box.top, box.left, box.height, box.width);
      break;
    }
    case OP_FLIP_X:
      if (drawn.flips) add_flip(view, true, width);
      break;
    case OP_FLIP_Y:
      if (drawn.flips) add_flip(view, false, height);
      break;
    case OP_AFFINE:
      view.map = view.is_resampled ? joined(view.map, drawn.map) : drawn.map;
      if (!view.is_resampled) {
        view.is_resampled = true;
        view.affine = index;
        view.height = height;
        view.width = width;
      }
      break;
    case OP_NORMALIZE: view.normalize = index; break;
    case OP_ERASE:
    case OP_CUTOUT:
      if (drawn.box.height > 0 && drawn.box.width > 0) {
        view.erased[view.erasures] = drawn.box;
        view.eraser[view.erasures++] = view.normalize < 0 ? -1 - index : index;
      }
      break;
    default: break;
  }
}

// Puts all operations of one sample together.
RN_HD void make_view(View& view, const Operation* ops, i32 count, const Drawn* drawn, i32 height,
                     i32 width) {
  view.row_steps = view.column_steps = view.late_row_steps = view.late_column_steps = 0;
  view.is_resampled = false;
  view.affine = view.normalize = -1;
  view.erasures = 0;
  for (i32 k = 0; k < count; ++k) {
    i32 h = height, w = width;
    size_before(ops, k, &h, &w);
    add_operation(view, ops[k], k, drawn[k], h, w);
  }
  if (!view.is_resampled) {
    view.height = height;
    view.width = width;
    size_before(ops, count, &view.height, &view.width);
  }
}

// The uint8 picture of one sample; strides in bytes.
struct Source {
  const u8* pixels;
  i64 row, pixel, channel;
};

// Level of channel c where the index maps lead to (y, x): a base coordinate or a fill's code.
RN_HD float level_at(const Operation* ops, const Source& source, i32 y, i32 x, i32 c) {
  const i32 code = y < x ? y : x;
  if (code < 0) return ops[-1 - code].value[c];
  return static_cast<float>(source.pixels[y * source.row + x * source.pixel + c * source.channel]);
}

// Tables of resolve() along both axes, (view.height,) and (view.width,).
struct Maps {
  const i32* rows;
  const i32* columns;
};

RN_HD float resampled_at(const View& view, const Operation* ops, const Source& source,
                         const Maps& maps, i32 y, i32 x, i32 c) {
  const Operation& op = ops[view.affine];
  const bool nearest = op.flags & AFFINE_NEAREST;
  const RowMap map = row_map(view.map, y, view.height, view.width);
  const Place place = place_of(map, x, view.height, view.width, nearest);
  float corner[4];
  for (i32 k = 0; k < (nearest ? 1 : 4); ++k) {
    const i32 v = place.top + k / 2, u = place.left + k % 2;
    const bool outside = v < 0 || u < 0 || v >= view.height || u >= view.width;
    corner[k] = outside ? op.value[c] : level_at(ops, source, maps.rows[v], maps.columns[u], c);
  }
  return nearest ? corner[0]
                 : bilinear(corner[0], corner[1], corner[2], corner[3], place.fx, place.fy);
}

// Channel c of the output pixel (y, x).
RN_HD float value_at(const View& view, const Operation* ops, const SampleKey& who,
                     const Source& source, const Maps& maps, i32 y, i32 x, i32 c) {
  const Operation& normalize = ops[view.normalize];
  const float scale = normalize.value[c], shift = normalize.value[MAX_CHANNELS + c];
  for (i32 k = view.erasures - 1; k >= 0; --k) {
    const Box& box = view.erased[k];
    const i32 v = y - box.top, u = x - box.left;
    if (v < 0 || u < 0 || v >= box.height || u >= box.width) continue;
    const bool in_levels = view.eraser[k] < 0;
    const Operation& op = ops[in_levels ? -1 - view.eraser[k] : view.eraser[k]];
    if (is_noise(op))
      return noise_at(op, who, (static_cast<u64>(c) * box.height + v) * box.width + u);
    return in_levels ? op.value[c] * scale + shift : op.value[c];
  }
  if (!view.is_resampled)
    return level_at(ops, source, maps.rows[y], maps.columns[x], c) * scale + shift;
  const i32 late_y = resolve(view.late_rows, view.late_row_steps, y);
  const i32 late_x = resolve(view.late_columns, view.late_column_steps, x);
  return resampled_at(view, ops, source, maps, late_y, late_x, c) * scale + shift;
}

}  // namespace rn
