#include "elastiquant/coding/gap_code.h"

#include <bit>
#include <cassert>

namespace elastiquant {
namespace {

// The bits below the symbol's.
int PlainBits(uint32_t gap) { return gap < 4 ? 0 : static_cast<int>(std::bit_width(gap)) - 2; }

int SymbolOf(uint32_t gap, int plain_bits) {
  return gap == 1 ? 0 : 2 * plain_bits + 1 + static_cast<int>(gap >> plain_bits & 1);
}

// Calls visit(gap, mark) for each position.
template <typename Visit>
void VisitGaps(const GapRun& run, Visit visit) {
  assert(run.marks.empty() || run.marks.size() == run.positions.size());
  uint32_t next = run.next;
  for (size_t i = 0; i < run.positions.size(); ++i) {
    const uint32_t position = run.positions[i];
    assert(position >= next);
    visit(position + 1 - next, run.marks.empty() ? GapMark::kNone : run.marks[i]);
    next = position + 1;
  }
}

// With marks there are two symbols in the place of one.
size_t MarkedSymbol(int symbol, bool marked, GapMark mark) {
  return static_cast<size_t>(marked ? 2 * symbol + (mark != GapMark::kNone) : symbol);
}

}  // namespace

void GapCounts::Add(const GapRun& run) {
  VisitGaps(run, [&](uint32_t gap, GapMark mark) {
    const int bits = PlainBits(gap);
    ++symbols[MarkedSymbol(SymbolOf(gap, bits), !run.marks.empty(), mark)];
    plain_bits += static_cast<uint64_t>(bits + (mark != GapMark::kNone));
  });
}

void GapCounts::Add(const GapCounts& other) {
  for (size_t s = 0; s < symbols.size(); ++s) symbols[s] += other.symbols[s];
  plain_bits += other.plain_bits;
}

GapCode::GapCode(const GapCounts& counts, bool marked)
    : code_(PrefixCode::Optimal(counts.symbols)), marked_(marked) {}

Result<GapCode> GapCode::Read(std::span<const uint8_t> in, bool marked, size_t* bytes) {
  EQ_ASSIGN_OR_RETURN(const PrefixCode code,
                      PrefixCode::Read(in, marked ? 2 * kGapSymbols : kGapSymbols, bytes));
  return GapCode(code, marked);
}

uint64_t GapCode::Bits(const GapCounts& counts) const {
  uint64_t bits = counts.plain_bits;
  for (int s = 0; s < kMaxPrefixSymbols; ++s) {
    bits += counts.symbols[static_cast<size_t>(s)] * static_cast<uint64_t>(code_.length(s));
  }
  return bits;
}

uint64_t GapCode::MaxBits(uint64_t positions, uint64_t n) {
  if (positions == 0) return 0;
  // The sum of log2(gap) is the largest if all gaps are equal; and a bit for the mark.
  const auto log = static_cast<uint64_t>(std::bit_width((n - 1) / positions));
  return positions * (7 + log + 1);
}

void GapCode::Encode(const GapRun& run, BitWriter& writer) const {
  VisitGaps(run, [&](uint32_t gap, GapMark mark) {
    const int bits = PlainBits(gap);
    const size_t symbol = MarkedSymbol(SymbolOf(gap, bits), marked_, mark);
    const uint64_t plain = gap & ((uint64_t{1} << bits) - 1);
    uint64_t all = uint64_t{code_.code(static_cast<int>(symbol))} << bits | plain;
    int length = code_.length(static_cast<int>(symbol)) + bits;
    if (mark != GapMark::kNone) {
      all = all << 1 | (mark == GapMark::kMinus);
      ++length;
    }
    if (length == 0) return;
    writer.Add(all, length);
    writer.Flush();
  });
}

template <bool kMarked>
bool GapDecoder::DecodeAs(BitReader& reader, uint32_t next, uint32_t last,
                          std::span<uint32_t> positions, std::span<GapMark> marks) const {
  uint64_t before = uint64_t{next} + 0xFFFFFFFFu;  // 2^32 more, as next may be 0
  const uint64_t end = uint64_t{last} + 0x100000000u;
  for (size_t i = 0; i < positions.size(); ++i) {
    reader.Reload();
    int symbol = decoder_.Next(reader);
    bool marked = false;
    if constexpr (kMarked) {
      marked = symbol % 2 != 0;
      symbol /= 2;
    }
    const int bits = symbol < 3 ? 0 : (symbol - 1) / 2;
    uint64_t gap = symbol == 0 ? 1 : uint64_t{2} + (symbol - 1) % 2;
    if (bits > 0) {
      gap = gap << bits | reader.Peek(bits);
      reader.Skip(bits);
    }
    before += gap;
    if (before > end) return false;
    positions[i] = static_cast<uint32_t>(before);
    if constexpr (kMarked) {
      marks[i] = !marked               ? GapMark::kNone
                 : reader.Peek(1) != 0 ? GapMark::kMinus
                                       : GapMark::kPlus;
      reader.Skip(marked ? 1 : 0);
    }
  }
  return before == end;
}

bool GapDecoder::Decode(BitReader& reader, uint32_t next, uint32_t last,
                        std::span<uint32_t> positions, std::span<GapMark> marks) const {
  return marked_ ? DecodeAs<true>(reader, next, last, positions, marks)
                 : DecodeAs<false>(reader, next, last, positions, marks);
}

}  // namespace elastiquant
