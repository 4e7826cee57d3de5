// JPEG through libjpeg-turbo, as much of the picture as is needed.
//
// Decoding a crop is bit-exact to decoding everything: one pixel more on each side is decoded,
// because the chroma interpolation looks at the neighbours. A warning of the decoder counts as
// damage: bytes overwritten in the middle of a file give a picture, but not the right one.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "program.h"

namespace rn {

bool is_jpeg(const u8* data, std::size_t size);

class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Whether this build has libjpeg-turbo.
  static bool available();

  // Reads the header of a JPEG that stays in memory until `decode`; channels 1 (grey) or 3 (RGB).
  // False: problem() says what is wrong.
  bool open(const u8* data, std::size_t size, int channels);
  int height() const;
  int width() const;
  // How many bytes `decode` may write for this part of the picture.
  std::size_t bytes_for(const Box& needed) const;
  // Decodes at least `needed` into `pixels`; `image` then says which part of the picture it is.
  bool decode(const Box& needed, u8* pixels, Image* image);
  const std::string& problem() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rn
