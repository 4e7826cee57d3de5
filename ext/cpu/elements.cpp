// A program evaluated element by element, as the CUDA kernel does: the same text, run on the host.
#include <vector>

#include "blocks.h"
#include "program.h"
#include "renaissance/pixels.h"

namespace rn {

void Program::run_by_element(const Image& image, const SampleKey& who, void* out,
                             const OutputSpec& spec) const {
  const int total = static_cast<int>(operations_.size()), planes = channels();
  const int wanted = spec.channels ? spec.channels : planes;
  std::vector<Drawn> drawn(operations_.size());
  for (int k = 0; k < total; ++k) {
    i32 h = image.height, w = image.width;
    size_before(operations_.data(), k, &h, &w);
    drawn[k] = draw_operation(operations_[k], who, h, w);
  }
  View view;
  make_view(view, operations_.data(), total, drawn.data(), image.height, image.width);
  std::vector<i32> rows(view.height), columns(view.width);
  for (i32 k = 0; k < view.height; ++k) rows[k] = resolve(view.rows, view.row_steps, k);
  for (i32 k = 0; k < view.width; ++k) columns[k] = resolve(view.columns, view.column_steps, k);
  const Source source = {image.pixels, image.row_stride, image.pixel_stride, image.channel_stride};
  const Maps maps = {rows.data(), columns.data()};
  for (int y = 0; y < height(); ++y)
    for (int x = 0; x < width(); ++x)
      for (int c = 0; c < wanted; ++c) {
        const i64 at = spec.layout == LAYOUT_NHWC ? (i64(y) * width() + x) * wanted + c
                                                  : (i64(c) * height() + y) * width() + x;
        const float value =
            c < planes ? value_at(view, operations_.data(), who, source, maps, y, x, c) : 0.0f;
        put(out, at, spec.dtype, value);
      }
}

}  // namespace rn
