// Mixing two finished samples in place.
#pragma once
#include "program.h"
#include "renaissance/mix.h"

namespace rn {

// Both samples are (channels, height, width) or (height, width, channels), as `spec` says.
void mix_pair(const MixDraw& drawn, const OutputSpec& spec, int height, int width, void* first,
              void* second);

// Two rows of probabilities, one after the other: `weight` for the own class and the rest for the
// partner's, added where both are one class. The labels are below `classes`.
void mix_targets(float weight, i64 first_label, i64 second_label, i64 classes, float* rows);

}  // namespace rn
