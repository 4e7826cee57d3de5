// Where a feed mixes: whoever finishes the second sample of a pair does it, in the slot.
#include "pairs.h"

#include <algorithm>

#include "feed.h"
#include "mix.h"

namespace rn {

// Everything about the sample at this position is in the slot, its error too if it has one.
void Feed::pair_up(int slot, i64 position) {
  Slot& s = *slots_[slot];
  const i64 classes = options_.mix.classes;
  if (classes == 0 || !s.pairs.completes(position)) return;
  const i64 first = position - position % 2, last = s.pairs.is_alone(position) ? first : first + 1;
  for (i64 k = first; k <= last; ++k)
    if (!check_label(slot, k)) return;
  float* targets = reinterpret_cast<float*>(s.memory.y) + first * classes;
  if (first == last) {
    std::fill(targets, targets + classes, 0.0f);
    targets[s.pairs.label(first)] = 1.0f;
    return;
  }
  const MixDraw drawn =
      draw_mix(options_.mix.spec, options_.mix.key, s.epoch, static_cast<u64>(s.ids[first]),
               static_cast<u64>(s.ids[last]), program_->height(), program_->width());
  u8* x = s.memory.x + first * options_.sample_bytes;
  mix_pair(drawn, options_.output, program_->height(), program_->width(), x,
           x + options_.sample_bytes);
  mix_targets(drawn.weight, s.pairs.label(first), s.pairs.label(last), classes, targets);
}

// Labels are checked when a loader is made, but an array may have changed since.
bool Feed::check_label(int slot, i64 position) {
  Slot& s = *slots_[slot];
  const i64 label = s.pairs.label(position), classes = options_.mix.classes;
  if (label >= 0 && label < classes) return true;
  std::lock_guard<std::mutex> hold(s.guard);
  const i64 id = s.ids[position];
  report({slot, position, id, id, 0}, id,
         "has label " + std::to_string(label) + " now; with " + std::to_string(classes) +
             " classes it takes 0 to " + std::to_string(classes - 1));
  return false;
}

}  // namespace rn
