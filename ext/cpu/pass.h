// What all rows of one pass over a canvas share.
#pragma once
#include "canvas.h"

namespace rn {

struct Canvas::Pass {
  Scaling scaling;
  bool is_normalized = false;  // whether producing a row already normalises it
  // Index maps.
  bool as_bytes = false;  // pixels and fills are whole levels: they are moved as bytes
  int* codes = nullptr;   // of columns [0, begin) and [end, width), as Axis::at gives them
  bool is_uniform = true; // each side is one constant fill
  void* band = nullptr;   // planes of a few rows, on their way to the result
  // Affine map only.
  AffineBlock affine;
  // Resize only.
  Taps taps;             // of the output columns, in their order
  float* weights;        // room for those of one output row
  float* line;           // one input row, blended from several
  const void** sources;  // the rows it is blended from
};

}  // namespace rn
