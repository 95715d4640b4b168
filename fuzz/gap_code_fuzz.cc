// Byte 0 chooses marks and how many positions there are, bytes 1 to 4 the last of them. The
// rest is decoded as it stands, table and positions, and then, taken as gaps, must come back.
#include <algorithm>
#include <cstring>
#include <vector>

#include "elastiquant/coding/gap_code.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

void TryDecode(std::span<const uint8_t> in, bool marked, size_t count, uint32_t last) {
  size_t table = 0;
  const auto code = GapCode::Read(in, marked, &table);
  if (!code.ok()) return;
  BitReader reader(in.subspan(table));
  std::vector<uint32_t> positions(count);
  std::vector<GapMark> marks(marked ? count : 0);
  if (!GapDecoder(*code).Decode(reader, 0, last, positions, marks)) return;
  FUZZ_CHECK(positions.back() == last);
  FUZZ_CHECK(std::ranges::adjacent_find(positions, std::ranges::greater_equal()) ==
             positions.end());
}

// Gaps of one byte, or, after a byte of 255, of up to four.
std::vector<uint32_t> Positions(std::span<const uint8_t> in) {
  std::vector<uint32_t> positions;
  uint64_t at = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    uint32_t gap = in[i];
    if (gap == 255) {
      gap = 0;
      const size_t bytes = std::min<size_t>(4, in.size() - i - 1);
      if (bytes > 0) std::memcpy(&gap, in.data() + i + 1, bytes);
      i += bytes;
    }
    at += gap;
    if (at >= 0xFFFFFFFF) break;
    positions.push_back(static_cast<uint32_t>(at++));
  }
  return positions;
}

void TryRoundTrip(const std::vector<uint32_t>& positions, bool marked) {
  std::vector<GapMark> marks;
  for (const uint32_t position : positions) {
    const GapMark mark = position % 3 == 0   ? GapMark::kNone
                         : position % 3 == 1 ? GapMark::kPlus
                                             : GapMark::kMinus;
    if (marked) marks.push_back(mark);
  }
  const GapRun run{0, positions, marks};
  GapCounts counts;
  counts.Add(run);
  const GapCode code(counts, marked);
  FUZZ_CHECK(code.Bits(counts) <= GapCode::MaxBits(positions.size(), positions.back() + 1u));
  uint8_t table[GapCode::kMaxTableBytes];
  const size_t table_bytes = code.Write(table);
  std::vector<uint8_t> stream(code.Bits(counts) / 8 + 9);
  BitWriter writer(stream);
  code.Encode(run, writer);
  size_t size = 0;
  FUZZ_CHECK(writer.Finish(&size) && size == (code.Bits(counts) + 7) / 8);

  size_t read = 0;
  const auto again = GapCode::Read({table, table_bytes}, marked, &read);
  FUZZ_CHECK(again.ok() && read == table_bytes);
  BitReader reader(std::span<const uint8_t>(stream).first(size));
  std::vector<uint32_t> back(positions.size());
  std::vector<GapMark> marks_back(marks.size());
  FUZZ_CHECK(GapDecoder(*again).Decode(reader, 0, positions.back(), back, marks_back));
  FUZZ_CHECK(back == positions && marks_back == marks && reader.AtFinish());
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 5) return 0;
  const bool marked = data[0] % 2 != 0;
  const size_t count = size_t{1} + data[0] / 2;
  uint32_t last = 0;
  std::memcpy(&last, data + 1, sizeof(last));
  const std::span<const uint8_t> rest(data + 5, size - 5);
  elastiquant::TryDecode(rest, marked, count, last);
  const std::vector<uint32_t> positions = elastiquant::Positions(rest);
  if (!positions.empty()) elastiquant::TryRoundTrip(positions, marked);
  return 0;
}
