#include "elastiquant/coding/rans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/coding/bit_stream.h"
#include "elastiquant/coding/fixed.h"
#include "elastiquant/coding/rans_table.h"
#include "elastiquant/kernels/count_codes.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {
namespace {

enum Mode : uint8_t {
  kFixedMode = 0,
  kConstantMode = 1,
  kSingleMode = 2,
  kRowsMode = 3,
  kWideRowsMode = 4
};

// log2(f) in 1/256 bits, straight between powers of 2: at most 0.09 bits too little.
uint64_t Log2In256ths(uint32_t f) {
  const unsigned exponent = static_cast<unsigned>(std::bit_width(f)) - 1;
  return 256u * exponent + ((f << 8 >> exponent) - 256);
}

// Lanes make it fast but cost about a byte each: there should be enough bits to pay for them.
Mode ChooseMode(const uint32_t counts[256], const RansFrequencies& frequencies) {
  uint64_t n = 0;
  uint64_t cost = 0;  // in 1/256 bits
  for (size_t c = 0; c < 256; ++c) {
    if (counts[c] == 0) continue;
    n += counts[c];
    cost += counts[c] * (256u * kRansScaleBits - Log2In256ths(frequencies.of[c]));
  }
  if (n < 8192) return kSingleMode;
  return cost / 256 < 60000 ? kRowsMode : kWideRowsMode;
}
constexpr size_t LanesOf(uint8_t mode) { return mode == kRowsMode ? 32 : 64; }

constexpr size_t kMaxTail = 512;  // decoded one by one, so slowly
// The kernel wants room for as many words as a row can emit.
constexpr size_t kStoreSlack = 2 * kMaxRansLanes;

Status CorruptRans(const char* what) {
  return CorruptData(std::string("rans coding: ") + what);
}

template <typename T>
void Append(const T& value, uint8_t** next) {
  std::memcpy(*next, &value, sizeof(T));
  *next += sizeof(T);
}

// The end of the codes, as the initial states of the lanes carry it.
struct Tail {
  size_t length = 0;
  uint32_t state = kRansLow;
  std::array<uint16_t, kMaxRansLanes> words{};  // in the order of reading
};

// Takes as many rows into the tail as the lanes can carry.
Tail EncodeTail(std::span<const uint8_t> codes, const RansEncoderTable& table, size_t lanes) {
  Tail tail;
  uint8_t words[2 * kMaxRansLanes];
  size_t used = 0;
  size_t take = codes.size() % lanes;  // fits: a code emits at most one word
  while (tail.length + take <= std::min(codes.size(), kMaxTail)) {
    uint32_t state = tail.state;
    const uint8_t* begin = codes.data() + (codes.size() - tail.length - take);
    const size_t more =
        RansEncodeOne(begin, take, table, &state, words + 2 * used, lanes - used);
    if (more == kRansNoRoom) break;
    used += more;
    tail.state = state;
    tail.length += take;
    take = lanes;
  }
  ReverseWords(words, used);
  std::memcpy(tail.words.data(), words, 2 * used);
  return tail;
}

// The words are reversed in place; returns the end, or null if they do not fit.
uint8_t* EncodeSingle(std::span<const uint8_t> codes, const RansEncoderTable& table,
                      uint8_t* next, const uint8_t* limit) {
  uint8_t* const state_at = next;
  uint8_t* const words = next + sizeof(uint32_t);
  if (words > limit) return nullptr;
  uint32_t state = kRansLow;
  const size_t count = RansEncodeOne(codes.data(), codes.size(), table, &state, words,
                                     static_cast<size_t>(limit - words) / 2);
  if (count == kRansNoRoom) return nullptr;
  std::memcpy(state_at, &state, sizeof(state));
  ReverseWords(words, count);
  return words + 2 * count;
}

uint8_t* EncodeRows(std::span<const uint8_t> codes, const RansEncoderTable& table, size_t lanes,
                    const float* soon, uint8_t* next, const uint8_t* limit) {
  const Tail tail = EncodeTail(codes, table, lanes);
  const size_t rows = (codes.size() - tail.length) / lanes;
  uint32_t states[kMaxRansLanes];
  for (size_t lane = 0; lane < lanes; ++lane) states[lane] = kRansLow | tail.words[lane];

  Append(static_cast<uint8_t>(tail.length / lanes), &next);
  Append(tail.state, &next);
  uint8_t* const words = next + lanes * sizeof(uint32_t);
  const size_t count = RansEncodeRows(codes.data(), rows, lanes, table, states, words,
                                      static_cast<size_t>(limit - words) / 2, soon);
  if (count == kRansNoRoom) return nullptr;
  std::memcpy(next, states, lanes * sizeof(uint32_t));
  ReverseWords(words, count);
  return words + 2 * count;
}

// Returns the end, or null if kFixed is not longer.
uint8_t* EncodeCoded(std::span<const uint8_t> codes, int bits, const uint32_t counts[256],
                     const float* soon, std::span<uint8_t> out) {
  const RansFrequencies frequencies = NormalizeCounts(counts);
  const Mode mode = ChooseMode(counts, frequencies);
  out[0] = mode;
  BitWriter writer(out.subspan(1));
  WriteRansTable(frequencies, bits, writer);
  size_t table_bytes = 0;
  writer.Finish(&table_bytes);

  RansEncoderTable table;
  MakeRansEncoderTable(frequencies, &table);
  uint8_t* const next = out.data() + 1 + table_bytes;
  const uint8_t* const limit = out.data() + out.size();
  uint8_t* const end = mode == kSingleMode
                           ? EncodeSingle(codes, table, next, limit)
                           : EncodeRows(codes, table, LanesOf(mode), soon, next, limit);
  const size_t worst = 1 + FixedBytes(codes.size(), bits);
  return end == nullptr || end - out.data() >= static_cast<ptrdiff_t>(worst) ? nullptr : end;
}

Status DecodeSingle(std::span<const uint8_t> in, const RansDecoderTable& table,
                    std::span<uint8_t> codes) {
  ByteReader reader(in);
  uint32_t state;
  if (!reader.Read(&state)) return CorruptRans("it ends before the state");
  if (state < kRansLow) return CorruptRans("the state is too small");
  const size_t count = reader.remaining() / 2;
  const size_t used = RansDecodeOne(in.data() + reader.position(), count, table, &state,
                                    codes.data(), codes.size());
  if (used == kRansNoRoom) return CorruptRans("it ends too early");
  if (2 * used != reader.remaining()) return CorruptRans("words are left after the last code");
  if (state != kRansLow) return CorruptRans("the final state is wrong");
  return Status::Ok();
}

Status DecodeTail(std::span<const uint32_t> states, uint32_t state,
                  const RansDecoderTable& table, std::span<uint8_t> codes) {
  uint16_t words[kMaxRansLanes];
  for (size_t lane = 0; lane < states.size(); ++lane) {
    if (states[lane] >> 16 != 1) return CorruptRans("a final state is wrong");
    words[lane] = static_cast<uint16_t>(states[lane]);
  }
  const size_t used = RansDecodeOne(reinterpret_cast<const uint8_t*>(words), states.size(),
                                    table, &state, codes.data(), codes.size());
  if (used == kRansNoRoom) return CorruptRans("the tail ends too early");
  const bool rest_is_zero =
      std::all_of(words + used, words + states.size(), [](uint16_t word) { return word == 0; });
  if (!rest_is_zero || state != kRansLow) return CorruptRans("the tail's final state is wrong");
  return Status::Ok();
}

Status DecodeRows(std::span<const uint8_t> in, const RansDecoderTable& table, size_t lanes,
                  std::span<uint8_t> codes, const float* soon) {
  ByteReader reader(in);
  uint8_t tail_rows;
  uint32_t tail_state;
  std::span<const uint8_t> state_bytes;
  if (!reader.Read(&tail_rows) || !reader.Read(&tail_state) ||
      !reader.ReadSpan(lanes * sizeof(uint32_t), &state_bytes)) {
    return CorruptRans("it ends before the states");
  }
  const size_t tail = codes.size() % lanes + lanes * tail_rows;
  if (tail > codes.size()) return CorruptRans("the tail is longer than the whole");
  uint32_t states[kMaxRansLanes];
  std::memcpy(states, state_bytes.data(), state_bytes.size());
  const auto too_small = [](uint32_t x) { return x < kRansLow; };
  if (too_small(tail_state) || std::any_of(states, states + lanes, too_small)) {
    return CorruptRans("a state is too small");
  }
  const size_t rows = (codes.size() - tail) / lanes;
  const size_t used = RansDecodeRows(in.data() + reader.position(), reader.remaining() / 2,
                                     table, states, codes.data(), rows, lanes, soon);
  if (used == kRansNoRoom) return CorruptRans("it ends too early");
  if (2 * used != reader.remaining()) return CorruptRans("words are left after the last code");
  return DecodeTail({states, lanes}, tail_state, table, codes.last(tail));
}

Status DecodeConstant(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes) {
  if (in.size() != 1) return CorruptRans("a constant takes one byte");
  if (in[0] >> bits != 0) return CorruptRans("the constant does not fit in the bits");
  std::fill(codes.begin(), codes.end(), in[0]);
  return Status::Ok();
}

}  // namespace

size_t MaxRansBytes(size_t n, int bits) {
  return 1 + FixedBytes(n, bits) + MaxRansTableBytes(bits) +
         sizeof(uint32_t) * (kMaxRansLanes + 2) + kStoreSlack;
}

Result<size_t> EncodeRans(std::span<const uint8_t> codes, int bits, std::span<uint8_t> out,
                          const float* soon) {
  if (out.size() < MaxRansBytes(codes.size(), bits)) {
    return BufferTooSmall("rans coding needs " +
                          std::to_string(MaxRansBytes(codes.size(), bits)) +
                          " bytes, but has " + std::to_string(out.size()));
  }
  uint32_t counts[256];
  CountCodes(codes.data(), codes.size(), bits, counts);
  const size_t alphabet = size_t{1} << bits;
  const auto occurs = [](uint32_t count) { return count != 0; };
  if (std::any_of(counts + alphabet, counts + 256, occurs)) {
    return InvalidArgument("rans coding: a code does not fit in " + std::to_string(bits) +
                           " bits");
  }
  const auto symbols = std::count_if(counts, counts + alphabet, occurs);
  if (symbols == 1) {
    out[0] = kConstantMode;
    out[1] = codes[0];
    return size_t{2};
  }
  if (symbols > 1) {
    const uint8_t* const end = EncodeCoded(codes, bits, counts, soon, out);
    if (end != nullptr) return static_cast<size_t>(end - out.data());
  }
  out[0] = kFixedMode;
  EQ_ASSIGN_OR_RETURN(const size_t size, EncodeFixed(codes, bits, out.subspan(1)));
  return 1 + size;
}

Status DecodeRans(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes,
                  const float* soon) {
  if (in.empty()) return CorruptRans("it is empty");
  const uint8_t mode = in[0];
  in = in.subspan(1);
  if (mode == kFixedMode) return DecodeFixed(in, bits, codes);
  if (mode == kConstantMode) return DecodeConstant(in, bits, codes);
  if (mode > kWideRowsMode) return CorruptRans("the mode is unknown");

  BitReader reader(in);
  RansFrequencies frequencies;
  if (!ReadRansTable(reader, bits, &frequencies)) {
    return CorruptRans("the frequency table is wrong");
  }
  if (reader.Overrun() || !reader.SkipToByte()) {
    return CorruptRans("the table is not filled with zeros");
  }
  RansDecoderTable table;
  MakeRansDecoderTable(frequencies, &table);
  in = in.subspan(reader.position() / 8);
  return mode == kSingleMode ? DecodeSingle(in, table, codes)
                             : DecodeRows(in, table, LanesOf(mode), codes, soon);
}

}  // namespace elastiquant
