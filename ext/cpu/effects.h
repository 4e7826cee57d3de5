// Operations that need the whole picture first: colour by its mean or histogram, and neighbourhoods.
#pragma once
#include "canvas.h"

namespace rn {

void jitter(Canvas& canvas, const Operation& op);
void grayscale(Canvas& canvas, const Operation& op);
void random_autocontrast(Canvas& canvas, const Operation& op);
void blur(Canvas& canvas, const Operation& op);
// TrivialAugmentWide and RandAugment; `index` is the operation's place in the program.
void automatic(Canvas& canvas, const Operation& op, int index);

}  // namespace rn
