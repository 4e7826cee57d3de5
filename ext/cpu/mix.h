// Mixing two finished samples in place.
#pragma once
#include "program.h"
#include "renaissance/mix.h"

namespace rn {

// Both samples are (channels, height, width) or (height, width, channels), as `spec` says.
void mix_pair(const MixDraw& drawn, const OutputSpec& spec, int height, int width, void* first,
              void* second);

}  // namespace rn
