// The entropy decoder of ordinary JPEG files, in the place of libjpeg-turbo's: for photographs of
// high quality Huffman codes take four fifths of the library's time, here less than half as much.
//
// Decoded here: the one scan of a sequential 8-bit file with Huffman codes and without restart
// markers that lies in memory as a whole (ITU-T T.81, annex C for tables, F.2.2 for decoding).
// Zeros stuffed behind 0xFF are taken out of the scan beforehand, so that eight bytes at a time
// become bits without a look at them; one look into a table then gives two coefficients.
// Left to the library: all other files, and everything around the codes (markers, tables, inverse
// DCT, upsampling, colour). Whatever is irregular within a scan is only noticed, never mended: the
// caller starts over with the library's decoder, whose pixels, warnings and errors of damaged
// files are thereby those of JpegDecoder.
#pragma once
#include "renaissance/portable.h"

namespace rn {

// Whether JpegDecoder uses this decoder where it can; true unless told otherwise. Returns whether
// it is in use now (false where libjpeg-turbo is missing or of an unknown version).
bool use_huffman(bool wanted);

struct HuffmanCounts {
  u64 decoded;       // pictures decoded with our decoder
  u64 started_over;  // begun with it; something was irregular, so the library decoded them anew
  u64 left;          // pictures left to the library from the start
};
HuffmanCounts huffman_counts();  // of this process, all threads

}  // namespace rn

#ifdef RN_HAVE_JPEG
#include <cstddef>
#include <cstdio>
#include <memory>
// jpeglib.h needs stdio first.
#include <jpeglib.h>

namespace rn {

void count_picture(bool is_ours, bool is_good);

// Columns of minimum coded units, the last included.
struct McuColumns {
  JDIMENSION first, last;
};

// The decoder of one thread: file after file, with the tables of the last one kept.
class HuffmanDecoder {
 public:
  // Takes over from the library's decoder after jpeg_start_decompress: false when the file stays
  // with the library. Coefficients outside of the columns needed are passed over. Irregular scans
  // end in the error exit of `info`; info.client_data is used until the picture is done.
  bool attach(jpeg_decompress_struct& info, const McuColumns& needed);

 private:
  static constexpr int INDEX_BITS = 10;  // 9 to 12 were measured

  // What one code says.
  struct Symbol {
    u8 bits;       // length of the code and its extra bits; 0: a code longer than INDEX_BITS
    u8 code_bits;  // of the code alone
    u8 shift;      // 63 - number of extra bits
    u8 advance;    // coefficients passed over and the one given; END or IRREGULAR
  };

  // What the next INDEX_BITS bits say: the last code they hold and, perhaps, one before it. One
  // word, because a single load is faster than seven.
  struct Pair {
    u64 word;

    u32 bits() const { return byte(0); }     // length of all codes and their extra bits
    u32 place() const { return byte(1); }    // of the last one, from the next on; END added
    u32 shift() const { return byte(2); }    // 63 - number of the last one's extra bits
    u32 skip() const { return byte(3); }     // length of all before the last one's extra bits
    u32 zeros() const { return byte(4); }    // before the first coefficient
    u32 advance() const { return byte(5); }  // with the first coefficient, 0 if there is only one
    int value() const { return static_cast<int>(static_cast<i64>(word) >> 48); }  // of the first

   private:
    u32 byte(int k) const { return static_cast<u32>(word >> 8 * k & 255); }
  };

  struct Table {
    bool is_made = false;
    u8 lengths[17];  // how many codes of each length
    u8 symbols[256];
    u32 beyond[17];  // the first code that is too large for a length, left-aligned in 16 bits
    i32 place[17];   // of code 0 of a length among the symbols
    bool is_dc;
    Symbol single[1 << INDEX_BITS];

    bool is_of(const JHUFF_TBL& from) const;
    bool make(const JHUFF_TBL& from, bool dc);
    Symbol symbol(int value, int code_bits) const;
    Symbol long_code(u64 bits) const;
    Symbol look(u64 bits) const;
  };

  struct PairTable {
    Table codes;
    Pair pairs[1 << INDEX_BITS];

    bool make(const JHUFF_TBL& from);
  };

  struct Component {
    const Table* dc;
    const PairTable* ac;
    i32 last_dc;
    bool is_needed;
  };

  // The scan's bits, the next one on top; zeros follow the last.
  struct Bits {
    u64 top = 0;
    u32 count = 0;  // at least so many are valid
    const u8* next = nullptr;

    void refill();  // to 56 bits or more
    void take(u32 length);
  };

  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks);
  static int extra(u64 bits, u32 skip, u32 shift);
  template <bool KEEPS>
  static bool coefficients(const PairTable& table, Bits& bits, JCOEF* block);

  bool make_tables(const jpeg_decompress_struct& info);
  bool take_scan(const jpeg_source_mgr& source);
  bool next_mcu(JBLOCKROW* blocks, bool keeps);
  std::ptrdiff_t used() const;  // bits of the scan
  bool finish(jpeg_source_mgr& source) const;

  Table dc_[NUM_HUFF_TBLS];
  PairTable ac_[NUM_HUFF_TBLS];
  Component components_[MAX_COMPS_IN_SCAN];
  int members_[D_MAX_BLOCKS_IN_MCU];  // component of each block of an MCU
  int num_blocks_ = 0;                // of an MCU
  JDIMENSION columns_ = 0, column_ = 0;
  McuColumns needed_{};
  i64 mcus_left_ = 0;
  std::unique_ptr<u8[]> scan_;  // without stuffing
  std::size_t capacity_ = 0;
  std::ptrdiff_t num_bits_ = 0;  // of the scan
  const u8* marker_ = nullptr;   // in the file, behind the scan
  Bits bits_;
};

}  // namespace rn
#endif
