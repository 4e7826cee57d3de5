#include "jpeg.h"

#include <algorithm>
#include <vector>

#include "huffman.h"

#ifdef RN_HAVE_JPEG
#include <csetjmp>
// After jpeglib.h.
#include <jerror.h>
#endif

namespace rn {

bool is_jpeg(const u8* data, std::size_t size) {
  return size >= 3 && data[0] == 0xFF && data[1] == 0xD8 && data[2] == 0xFF;
}

#ifdef RN_HAVE_JPEG

namespace {

constexpr i64 MAX_PIXELS = 1ll << 28;  // a header that promises more is taken for damage

struct Errors {
  jpeg_error_mgr base;  // first: libjpeg hands back its address
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

Errors* errors_of(j_common_ptr info) { return reinterpret_cast<Errors*>(info->err); }

[[noreturn]] void on_error(j_common_ptr info) {
  Errors* errors = errors_of(info);
  errors->base.format_message(info, errors->text);
  std::longjmp(errors->jump, 1);
}

void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // tracing
  Errors* errors = errors_of(info);
  if (errors->base.num_warnings++ == 0) errors->base.format_message(info, errors->text);
}

void on_output(j_common_ptr) {}  // nothing is ever printed

// The formula of ITU-R 601 in 16-bit fixed point, rounded to nearest.
u8 grey_of(int red, int green, int blue) {
  return static_cast<u8>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

int product255(int a, int b) {  // a * b / 255, rounded to nearest
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

// Four inks, stored inverted as every program since Photoshop writes them, to RGB or grey.
void convert_inks(const u8* inks, u8* out, int width, int channels) {
  for (int x = 0; x < width; ++x, inks += 4, out += channels) {
    int rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = std::max(0, inks[3] - product255(255 - inks[c], inks[3]));
    if (channels == 1) {
      out[0] = grey_of(rgb[0], rgb[1], rgb[2]);
    } else {
      for (int c = 0; c < 3; ++c) out[c] = static_cast<u8>(rgb[c]);
    }
  }
}

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct info{};
  Errors errors;
  bool is_made = false;
  bool has_inks = false;  // CMYK or YCCK
  bool is_ours = false;   // the entropy decoder
  int channels = 3;
  const u8* data = nullptr;
  std::size_t size = 0;
  std::string problem;
  std::vector<u8> ink_row;
  HuffmanDecoder huffman;

  // Runs body(info) and gives false with `problem` when libjpeg calls its error exit. The jump
  // skips destructors, so a body holds nothing that has one.
  template <class Body>
  bool guarded(const Body& body) {
    errors.text[0] = 0;
    if (setjmp(errors.jump)) {
      if (is_made) jpeg_abort_decompress(&info);
      problem = errors.text;
      return false;
    }
    body(info);
    return true;
  }

  bool fail(const char* text) {
    problem = text;
    jpeg_abort_decompress(&info);
    return false;
  }

  // A fresh decoder for every file (0.3 us): libjpeg keeps tables from one file to the next, and a
  // file without its own would be decoded with those of whichever came before it.
  bool make() {
    if (is_made) jpeg_destroy_decompress(&info);
    is_made = false;
    is_made = guarded([](jpeg_decompress_struct& file) { jpeg_create_decompress(&file); });
    return is_made;
  }

  // Reads the header and says how to decode.
  bool begin() {
    const bool good = make() && guarded([this](jpeg_decompress_struct& file) {
      jpeg_mem_src(&file, data, static_cast<unsigned long>(size));
      jpeg_read_header(&file, TRUE);
    });
    if (!good) return false;
    if (static_cast<i64>(info.image_height) * info.image_width > MAX_PIXELS)
      return fail("header promises more than 2^28 pixels");
    if (!has_end()) return fail("truncated: the end marker is missing");
    has_inks = info.num_components == 4;
    info.out_color_space = has_inks ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    info.dct_method = JDCT_ISLOW;
    info.do_fancy_upsampling = TRUE;
    info.err->num_warnings = 0;  // those of the header (an old JFIF number, say) are no damage
    if (has_inks) ink_row.resize(static_cast<std::size_t>(info.image_width) * 4);
    return true;
  }

  // Rows and columns that are decoded for what is needed.
  Box plan(const Box& needed) const {
    const int height = static_cast<int>(info.image_height);
    const int width = static_cast<int>(info.image_width);
    if (!can_crop()) return {0, 0, height, width};
    const int block = 8 * info.max_h_samp_factor;
    const int top = std::max(0, needed.top - 1);
    const int left = std::max(0, needed.left - 1) / block * block;
    return {top, left, std::min(height, needed.top + needed.height + 1) - top,
            std::min(width, needed.left + needed.width + 1) - left};
  }

  // The layouts for which the crop was checked to be bit-exact; others are decoded whole.
  bool can_crop() const {
    if (info.progressive_mode || info.arith_code || has_inks) return false;
    if (info.num_components != 1 && info.num_components != 3) return false;
    for (int c = 1; c < info.num_components; ++c)
      if (info.comp_info[c].h_samp_factor != 1 || info.comp_info[c].v_samp_factor != 1)
        return false;
    const int h = info.comp_info[0].h_samp_factor, v = info.comp_info[0].v_samp_factor;
    return info.num_components == 1 ? h == 1 && v == 1 : h <= 2 && v <= 2 && v <= h;
  }

  // A file that was cut has no end marker behind the start of its scan.
  bool has_end() const {
    const u8* begin = info.src->next_input_byte;
    for (const u8* p = begin + info.src->bytes_in_buffer; p - begin >= 2; --p)
      if (p[-1] == 0xD9 && p[-2] == 0xFF) return true;
    return false;
  }

  void read_rows(u8* pixels, int rows, i64 stride) {
    while (rows > 0) {
      u8* row = has_inks ? ink_row.data() : pixels;
      if (jpeg_read_scanlines(&info, &row, 1) != 1) return;
      if (has_inks) convert_inks(row, pixels, static_cast<int>(info.output_width), channels);
      pixels += stride;
      --rows;
    }
  }

  // Decodes a part as planned. False: problem() says what is wrong, warnings included.
  bool read(const Box& part, u8* pixels, bool wants_ours) {
    is_ours = false;
    const bool good = guarded([&](jpeg_decompress_struct& file) {
      jpeg_start_decompress(&file);
      crop(part);
      if (wants_ours) is_ours = huffman.attach(file, columns_of(part));
      // Skipped once and from the first row only: later skips can return stale rows.
      if (part.top > 0) jpeg_skip_scanlines(&file, static_cast<JDIMENSION>(part.top));
      read_rows(pixels, part.height, static_cast<i64>(part.width) * channels);
      if (file.output_scanline < file.output_height) {
        jpeg_abort_decompress(&file);
      } else {
        jpeg_finish_decompress(&file);
      }
    });
    if (good && errors.base.num_warnings > 0) problem = errors.text;
    return good && errors.base.num_warnings == 0;
  }

  bool is_cropped(const Box& part) const { return part.width < static_cast<int>(info.image_width); }

  // As jpeg_crop_scanline counts them for the layouts of can_crop. Of others all are needed.
  McuColumns columns_of(const Box& part) const {
    if (!is_cropped(part)) return {0, info.MCUs_per_row - 1};
    const int block = 8 * info.max_h_samp_factor;
    return {static_cast<JDIMENSION>(part.left / block),
            static_cast<JDIMENSION>((part.left + part.width - 1) / block)};
  }

  void crop(const Box& part) {
    if (!is_cropped(part)) return;
    JDIMENSION left = static_cast<JDIMENSION>(part.left);
    JDIMENSION width = static_cast<JDIMENSION>(part.width);
    jpeg_crop_scanline(&info, &left, &width);
    // Our plan rounds as the library does; were it ever to differ, rows would not fit.
    if (static_cast<int>(left) != part.left || static_cast<int>(width) != part.width)
      ERREXIT(&info, JERR_WIDTH_OVERFLOW);
  }
};

JpegDecoder::JpegDecoder() : state_(new State) {
  State& s = *state_;
  s.info.err = jpeg_std_error(&s.errors.base);
  s.errors.base.error_exit = on_error;
  s.errors.base.emit_message = on_message;
  s.errors.base.output_message = on_output;
}

JpegDecoder::~JpegDecoder() {
  if (state_->is_made) jpeg_destroy_decompress(&state_->info);
}

bool JpegDecoder::available() { return true; }

bool JpegDecoder::open(const u8* data, std::size_t size, int channels) {
  State& s = *state_;
  s.data = data;
  s.size = size;
  s.channels = channels;
  return s.begin();
}

int JpegDecoder::height() const { return static_cast<int>(state_->info.image_height); }
int JpegDecoder::width() const { return static_cast<int>(state_->info.image_width); }
const std::string& JpegDecoder::problem() const { return state_->problem; }

std::size_t JpegDecoder::bytes_for(const Box& needed) const {
  const Box part = state_->plan(needed);
  return static_cast<std::size_t>(part.height) * part.width * state_->channels;
}

bool JpegDecoder::decode(const Box& needed, u8* pixels, Image* image) {
  State& s = *state_;
  const Box part = s.plan(needed);
  bool good = s.read(part, pixels, true);
  count_picture(s.is_ours, good);
  // What is wrong with a file, and whether it is, the library's own decoder says.
  if (!good && s.is_ours) good = s.begin() && s.read(part, pixels, false);
  if (!good) return false;
  *image = {pixels, part.height, part.width, s.channels, static_cast<i64>(part.width) * s.channels,
            s.channels, 1, part.top, part.left, height(), width()};
  return true;
}

#else  // no jpeglib.h at build time

struct JpegDecoder::State {
  std::string problem = "this build has no libjpeg";
};
JpegDecoder::JpegDecoder() : state_(new State) {}
JpegDecoder::~JpegDecoder() = default;
bool JpegDecoder::available() { return false; }
bool JpegDecoder::open(const u8*, std::size_t, int) { return false; }
int JpegDecoder::height() const { return 0; }
int JpegDecoder::width() const { return 0; }
std::size_t JpegDecoder::bytes_for(const Box&) const { return 0; }
bool JpegDecoder::decode(const Box&, u8*, Image*) { return false; }
const std::string& JpegDecoder::problem() const { return state_->problem; }

#endif

}  // namespace rn
