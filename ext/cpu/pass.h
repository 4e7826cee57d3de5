// What all rows of one pass over a canvas share.
#pragma once
#include "canvas.h"

namespace rn {

// One constant rectangle that a pass leaves out: rows [first, last), and columns by a mask.
struct Hole {
  int first = 0, last = 0;
  const u32* columns = nullptr;
  float value[MAX_CHANNELS] = {};
};

struct Canvas::Pass {
  Scaling scaling;
  bool is_normalized = false;  // whether producing a row already normalises it
  int steps = 0;               // of colour
  // Index maps.
  bool as_bytes = false;  // pixels and fills are whole levels: they are moved as bytes
  int fill = Axis::NO_FILL;  // of everything outside the plain stretches, see Axis::fill
  int* codes = nullptr;      // MIXED: columns [0, begin) and [end, width), as Axis::at gives them
  void* band = nullptr;      // planes of a few rows, on their way to the result
  Hole hole;                 // what is erased while rows are converted
  // Affine map only.
  AffineBlock affine;
  // Resize only.
  Taps taps;             // of the output columns, in their order
  float* weights;        // room for those of one output row
  float* line;           // one input row, blended from several
  const void** sources;  // the rows it is blended from
};

}  // namespace rn
