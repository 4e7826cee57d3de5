#include "huffman.h"

#include <atomic>

#ifdef RN_HAVE_JPEG
#include <jerror.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#endif

namespace rn {

#ifdef RN_HAVE_JPEG

namespace {

// jpeglib.h keeps this struct to itself. It begins so in libjpeg-turbo 1.5, 2.0, 2.1, 3.0 and 3.1
// (jpegint.h); of other versions nothing is known, and they keep their own decoder.
struct EntropyDecoder {
  void (*start_pass)(j_decompress_ptr);
  boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
};
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 1005000 && \
    LIBJPEG_TURBO_VERSION_NUMBER < 3002000
constexpr bool IS_KNOWN = true;
#else
constexpr bool IS_KNOWN = false;
#endif

std::atomic<bool> is_wanted{true};
std::atomic<u64> decoded{0}, started_over{0}, left{0};

// Advances that lead out of a block: from any of its 63 places beyond 64, and END farther than
// IRREGULAR or a run of 16 can.
constexpr int IRREGULAR = 64, END = 128;
constexpr int FARTHEST = 63 + 16 + END;

// Extra bits of 8-bit files (T.81, tables F.1 and F.2). With codes of 16 bits, what is taken
// between two refills stays below 56.
constexpr int MOST_DC_BITS = 11, MOST_AC_BITS = 10;

// Zeros behind the scan: more than the codes of one MCU can take, 10 blocks of 64 symbols of 31
// bits, and what is read ahead.
constexpr std::size_t PADDING = 4096;

// Row-major place of the k-th coefficient in zigzag order (T.81, figure 5), the last for more.
struct Zigzag {
  u8 at[FARTHEST + 1];
  constexpr Zigzag() : at() {
    int k = 0;
    for (int diagonal = 0; diagonal < 15; ++diagonal)
      for (int i = 0; i <= diagonal; ++i) {
        const int y = diagonal % 2 ? i : diagonal - i, x = diagonal - y;
        if (y < 8 && x < 8) at[k++] = static_cast<u8>(y * 8 + x);
      }
    for (; k <= FARTHEST; ++k) at[k] = 63;
  }
};
constexpr Zigzag ZIGZAG;

}  // namespace

bool use_huffman(bool wanted) {
  is_wanted = wanted;
  return wanted && IS_KNOWN;
}

HuffmanCounts huffman_counts() { return {decoded, started_over, left}; }

void count_picture(bool is_ours, bool is_good) {
  std::atomic<u64>& count = !is_ours ? left : is_good ? decoded : started_over;
  count.fetch_add(1, std::memory_order_relaxed);
}

inline void HuffmanDecoder::Bits::refill() {
  u64 eight = 0;  // compilers make one load of it
  for (int i = 0; i < 8; ++i) eight = eight << 8 | next[i];
  top |= eight >> count;
  next += (63 - count) >> 3;
  count |= 56;
}

inline void HuffmanDecoder::Bits::take(u32 length) {
  top <<= length & 63;
  count -= length;
}

// The number that 63 - shift bits stand for after `skip` others (T.81, figure F.12): negative, and
// one too large, when the first of them is 0. No bits: 0.
inline int HuffmanDecoder::extra(u64 bits, u32 skip, u32 shift) {
  const u64 from = bits << (skip & 63);
  const u64 flip = (from >> 63) - 1;  // all ones for negative numbers
  const u64 size = ((from ^ flip) >> 1) >> (shift & 63);
  return static_cast<int>(static_cast<i64>((size ^ flip) - flip));
}

HuffmanDecoder::Symbol HuffmanDecoder::Table::symbol(int value, int code_bits) const {
  const int size = is_dc ? value : value & 15, run = is_dc ? 0 : value >> 4;
  int advance = run + 1;
  if (size > (is_dc ? MOST_DC_BITS : MOST_AC_BITS)) advance = IRREGULAR;
  if (!is_dc && size == 0 && run != 15) advance = END;
  return {static_cast<u8>(code_bits + size), static_cast<u8>(code_bits),
          static_cast<u8>(63 - (size & 63)), static_cast<u8>(advance)};
}

bool HuffmanDecoder::Table::is_of(const JHUFF_TBL& from) const {
  return is_made && std::memcmp(lengths, from.bits, sizeof(lengths)) == 0 &&
         std::memcmp(symbols, from.huffval, sizeof(symbols)) == 0;
}

// Canonical codes, ascending with their lengths (T.81, annex C). False: more codes than fit.
bool HuffmanDecoder::Table::make(const JHUFF_TBL& from, bool dc) {
  static_assert(sizeof(lengths) == sizeof(from.bits) && sizeof(symbols) == sizeof(from.huffval));
  is_made = false;
  is_dc = dc;
  std::memcpy(lengths, from.bits, sizeof(lengths));
  std::memcpy(symbols, from.huffval, sizeof(symbols));
  std::fill(std::begin(single), std::end(single), Symbol{1, 1, 63, IRREGULAR});
  u32 code = 0;
  int next = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    place[length] = next - static_cast<i32>(code);
    if (code + lengths[length] > 1u << length || next + lengths[length] > 256) return false;
    for (int i = 0; i < lengths[length]; ++i, ++code, ++next) {
      if (length > INDEX_BITS) {
        single[code >> (length - INDEX_BITS)] = Symbol{0, 0, 63, IRREGULAR};
      } else {
        const int free_bits = INDEX_BITS - length;
        std::fill_n(single + (code << free_bits), 1 << free_bits, symbol(symbols[next], length));
      }
    }
    beyond[length] = code << (16 - length);
  }
  return is_made = true;
}

HuffmanDecoder::Symbol HuffmanDecoder::Table::long_code(u64 bits) const {
  const u32 head = static_cast<u32>(bits >> 48);
  for (int length = INDEX_BITS + 1; length <= 16; ++length)
    if (head < beyond[length])
      return symbol(symbols[(place[length] + static_cast<i32>(head >> (16 - length))) & 255],
                    length);
  return {1, 1, 63, IRREGULAR};
}

inline HuffmanDecoder::Symbol HuffmanDecoder::Table::look(u64 bits) const {
  const Symbol found = single[bits >> (64 - INDEX_BITS)];
  return __builtin_expect(found.bits == 0, 0) ? long_code(bits) : found;
}

// The sum of the Pair of one code and what another before it adds, which fits in a pair's bytes.
constexpr u64 packed(u32 bits, u32 place, u32 shift, u32 skip, u32 zeros, u32 advance, int value) {
  u64 word = static_cast<u64>(value & 0xFFFF);
  for (u32 part : {advance, zeros, skip, shift, place, bits}) word = word << 8 | part;
  return word;
}

bool HuffmanDecoder::PairTable::make(const JHUFF_TBL& from) {
  if (!codes.make(from, false)) return false;
  Pair alone[1 << INDEX_BITS];
  for (u32 begin = 0; begin < 1 << INDEX_BITS;) {
    const Symbol one = codes.single[begin];
    const bool good = one.advance != IRREGULAR;
    const u32 count = good ? 1u << (INDEX_BITS - one.code_bits) : 1;  // of all that begin with it
    const u64 word = good ? packed(one.bits, one.advance - 1u, one.shift, one.code_bits, 0, 0, 0)
                          : packed(1, IRREGULAR, 63, 0, 0, 0, 0);
    std::fill_n(alone + begin, count, Pair{word});
    begin += count;
  }
  for (u32 begin = 0; begin < 1 << INDEX_BITS;) {
    const Symbol one = codes.single[begin];
    const bool is_first = one.advance < IRREGULAR && one.bits < INDEX_BITS;
    const u32 free_bits = is_first ? INDEX_BITS - one.bits : 0;
    const u64 bits = static_cast<u64>(begin) << (64 - INDEX_BITS);
    const u64 more = packed(one.bits, one.advance, 0, one.bits, one.advance - 1u, one.advance,
                            extra(bits, one.code_bits, one.shift));
    for (u32 k = 0; k < 1u << free_bits; ++k) {
      const Pair two = alone[k << (INDEX_BITS - free_bits) & ((1 << INDEX_BITS) - 1)];
      const bool has_two = is_first && two.place() != IRREGULAR && two.skip() <= free_bits;
      pairs[begin + k].word = has_two ? two.word + more : alone[begin + k].word;
    }
    begin += 1u << free_bits;
  }
  return true;
}

bool HuffmanDecoder::attach(jpeg_decompress_struct& info, const McuColumns& needed) {
  EntropyDecoder* entropy = reinterpret_cast<EntropyDecoder*>(info.entropy);
  if (!IS_KNOWN || !is_wanted.load(std::memory_order_relaxed)) return false;
  if (entropy == nullptr || entropy->decode_mcu == nullptr) return false;
  if (info.progressive_mode || info.arith_code || info.data_precision != 8 ||
      info.comps_in_scan != info.num_components || info.restart_interval != 0 ||
      info.buffered_image || info.unread_marker != 0)
    return false;
  if (info.Ss != 0 || info.Se != 63 || info.Ah != 0 || info.Al != 0) return false;
  if (!make_tables(info) || !take_scan(*info.src)) return false;
  num_blocks_ = info.blocks_in_MCU;
  std::copy(std::begin(info.MCU_membership), std::end(info.MCU_membership), members_);
  columns_ = info.MCUs_per_row;
  column_ = 0;
  needed_ = needed;
  mcus_left_ = static_cast<i64>(columns_) * info.MCU_rows_in_scan;
  info.client_data = this;
  entropy->decode_mcu = decode_mcu;
  return true;
}

bool HuffmanDecoder::make_tables(const jpeg_decompress_struct& info) {
  for (int c = 0; c < info.comps_in_scan; ++c) {
    const jpeg_component_info& component = *info.cur_comp_info[c];
    const int dc = component.dc_tbl_no, ac = component.ac_tbl_no;
    if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS) return false;
    const JHUFF_TBL *dc_codes = info.dc_huff_tbl_ptrs[dc], *ac_codes = info.ac_huff_tbl_ptrs[ac];
    if (dc_codes == nullptr || ac_codes == nullptr) return false;
    if (!dc_[dc].is_of(*dc_codes) && !dc_[dc].make(*dc_codes, true)) return false;
    if (!ac_[ac].codes.is_of(*ac_codes) && !ac_[ac].make(*ac_codes)) return false;
    components_[c] = {&dc_[dc], &ac_[ac], 0, component.component_needed != 0};
  }
  return true;
}

// Copies the scan up to the first marker without its stuffing. False: no marker, or no
// memory.
bool HuffmanDecoder::take_scan(const jpeg_source_mgr& source) {
  if (capacity_ < source.bytes_in_buffer + PADDING) {
    capacity_ = source.bytes_in_buffer + PADDING;
    scan_.reset(new (std::nothrow) u8[capacity_]);
    if (!scan_) capacity_ = 0;
  }
  if (!scan_) return false;
  const u8* from = source.next_input_byte;
  const u8* const end = from + source.bytes_in_buffer;
  u8* to = scan_.get();
  for (marker_ = nullptr; marker_ == nullptr;) {
    const void* found = std::memchr(from, 0xFF, static_cast<std::size_t>(end - from));
    const u8* at = static_cast<const u8*>(found);
    if (at == nullptr || at + 1 == end) return false;
    const std::size_t length = static_cast<std::size_t>(at - from) + (at[1] == 0);
    std::memcpy(to, from, length);
    to += length;
    from = at + 2;
    if (at[1] != 0) marker_ = at;
  }
  std::memset(to, 0, PADDING);
  num_bits_ = (to - scan_.get()) * 8;
  bits_ = {0, 0, scan_.get()};
  return true;
}

boolean HuffmanDecoder::decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  HuffmanDecoder& self = *static_cast<HuffmanDecoder*>(info->client_data);
  const bool keeps =
      blocks != nullptr && self.column_ >= self.needed_.first && self.column_ <= self.needed_.last;
  if (++self.column_ == self.columns_) self.column_ = 0;
  bool good = self.mcus_left_ > 0 && self.next_mcu(blocks, keeps);
  if (good && --self.mcus_left_ == 0) good = self.finish(*info->src);
  if (!good) ERREXIT(info, JERR_BAD_DCT_COEF);  // any error will do: the caller starts over
  return TRUE;
}

bool HuffmanDecoder::next_mcu(JBLOCKROW* blocks, bool keeps) {
  Bits bits = bits_;
  for (int b = 0; b < num_blocks_; ++b) {
    Component& component = components_[members_[b]];
    bits.refill();
    const Symbol dc = component.dc->look(bits.top);
    if (dc.advance == IRREGULAR) return false;
    component.last_dc += extra(bits.top, dc.code_bits, dc.shift);
    if (component.last_dc != static_cast<JCOEF>(component.last_dc)) return false;
    bits.take(dc.bits);
    bool good;
    if (keeps && component.is_needed) {
      JCOEF* block = *blocks[b];
      block[0] = static_cast<JCOEF>(component.last_dc);
      good = coefficients<true>(*component.ac, bits, block);
    } else {
      good = coefficients<false>(*component.ac, bits, nullptr);
    }
    if (!good) return false;
  }
  bits_ = bits;
  return used() <= num_bits_;
}

// Coefficients 1 to 63 of a block of zeros; entered with 29 bits at least, more than a pair takes.
// False: irregular. A pair is looked up before bits are refilled: neither waits for the other.
template <bool KEEPS>
inline bool HuffmanDecoder::coefficients(const PairTable& table, Bits& bits, JCOEF* block) {
  const u8* at = ZIGZAG.at + 1;  // place of the next coefficient
  const u8* const last = ZIGZAG.at + 63;
  Pair found;
  // A zero is stored where there is no first coefficient, or at the end of a block: there is none
  // yet at that place.
  const auto store = [&] {
    if (KEEPS) {
      block[at[found.zeros()]] = static_cast<JCOEF>(found.value());
      block[at[found.place()]] = static_cast<JCOEF>(extra(bits.top, found.skip(), found.shift()));
    }
    bits.take(found.bits());
  };
  for (;;) {
    for (;;) {
      found = table.pairs[bits.top >> (64 - INDEX_BITS)];
      bits.refill();
      if (at + found.place() >= last) break;
      store();
      at += found.place() + 1;
    }
    const bool has_end = found.place() >= END - 1 && at + found.advance() <= last;
    if (has_end || at + found.place() == last) {
      store();
      return true;
    }
    // A long code, or the block ends between two coefficients.
    const Symbol one = table.codes.look(bits.top);
    at += one.advance;
    if (KEEPS) block[at[-1]] = static_cast<JCOEF>(extra(bits.top, one.code_bits, one.shift));
    bits.take(one.bits);
    if (at > last) return at == last + 1 || at > ZIGZAG.at + END;
  }
}

std::ptrdiff_t HuffmanDecoder::used() const {
  return (bits_.next - scan_.get()) * 8 - static_cast<std::ptrdiff_t>(bits_.count);
}

// After the last MCU the marker comes next for the library. False: bytes in between.
bool HuffmanDecoder::finish(jpeg_source_mgr& source) const {
  if (num_bits_ - used() >= 8) return false;
  source.bytes_in_buffer -= static_cast<std::size_t>(marker_ - source.next_input_byte);
  source.next_input_byte = marker_;
  return true;
}

#else  // no jpeglib.h at build time

bool use_huffman(bool) { return false; }
HuffmanCounts huffman_counts() { return {0, 0, 0}; }

#endif

}  // namespace rn
