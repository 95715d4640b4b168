#include "elastiquant/codec/sparse_codec.h"

#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/sparse_values.h"
#include "elastiquant/coding/gap_code.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

std::string NumberText(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// Rounding must not know of the numbers that chose the coordinates.
LaneKeys RoundingKeys(StreamKey key) { return MakeLaneKeys({Mix64(key.value)}); }

// The bits of one coordinate at the most (a code, what follows it, and a mark), the values of a
// segment, and what a BitWriter stores beyond.
constexpr size_t kMaxSegmentBytes =
    kSparseSegment * (kMaxPrefixBits + 30 + 1) / 8 + 4 * kSparseSegment + 16;

// Writes the payload of listed positions.
class ListedWriter {
 public:
  ListedWriter(const SparseMessage& message, const SparseRounding& rounding, Workspace& work,
               std::span<uint8_t> payload)
      : message_(message),
        rounding_(rounding),
        work_(work),
        payload_(payload),
        front_{SparseSegments(message.kept.positions.size())} {}

  size_t Run() {
    if (front_.segments == 0) return 0;
    GapCounts counts;
    std::mutex mutex;
    ForEachSegment([&](size_t s) {
      const Segment segment(message_, s);
      GapCounts own;
      own.Add(segment.run);
      const std::lock_guard lock(mutex);
      counts.Add(own);  // whole numbers: in any order
    });
    const GapCode code(counts, message_.magnitude > 0);
    const size_t table = code.Write(payload_.data() + front_.table_at());
    data_ = payload_.data() + front_.table_at() + table;
    ForEachSegment([&](size_t s) { PutEnd(s, SizeOf(Segment(message_, s), code)); });
    uint64_t end = 0;
    for (size_t s = 0; s < front_.segments; ++s) {
      end += End(s);
      PutEnd(s, end);
    }
    ForEachSegment([&](size_t s) { Write(s, code); });
    return front_.table_at() + table + end;
  }

 private:
  // The kept coordinates that one thread works on.
  struct Segment {
    Segment(const SparseMessage& message, size_t s) {
      const SparseSelection& kept = message.kept;
      const size_t begin = s * kSparseSegment;
      const size_t size = SparseSegmentSize(kept.positions.size(), s);
      run.next = s == 0 ? 0 : kept.positions[begin - 1] + 1;
      run.positions = kept.positions.subspan(begin, size);
      values = kept.values.subspan(begin, size);
      valued = size;
      if (message.magnitude == 0) return;
      for (size_t i = 0; i < size; ++i) {
        const bool marked = std::fabs(values[i]) < message.magnitude;
        marks[i] = !marked ? GapMark::kNone : values[i] < 0 ? GapMark::kMinus : GapMark::kPlus;
        valued -= marked ? 1 : 0;
      }
      run.marks = {marks, size};
    }

    GapRun run;
    std::span<const float> values;
    size_t valued = 0;  // coordinates without a mark
    GapMark marks[kSparseSegment];
  };

  template <typename Fn>
  void ForEachSegment(const Fn& fn) {
    const auto item = [&](size_t s, int) { fn(s); };
    work_.ParallelFor(front_.segments, std::cref(item));
  }

  size_t SizeOf(const Segment& segment, const GapCode& code) const {
    GapCounts counts;
    counts.Add(segment.run);
    return (code.Bits(counts) + 7) / 8 + SparseValueBytes(segment.valued, rounding_.bits);
  }

  void Write(size_t s, const GapCode& code) const {
    const Segment segment(message_, s);
    uint8_t bytes[kMaxSegmentBytes];
    BitWriter writer(bytes);
    code.Encode(segment.run, writer);
    size_t size = 0;
    writer.Finish(&size);
    if (segment.valued == segment.values.size()) {
      WriteSparseValues(segment.values, segment.run.positions.data(), rounding_, bytes + size);
    } else {
      WriteUnmarked(segment, bytes + size);
    }
    size += SparseValueBytes(segment.valued, rounding_.bits);
    std::memcpy(data_ + (s == 0 ? 0 : End(s - 1)), bytes, size);
    const uint32_t last = segment.run.positions.back();
    std::memcpy(payload_.data() + 4 * s, &last, sizeof(last));
  }

  void WriteUnmarked(const Segment& segment, uint8_t* out) const {
    float values[kSparseSegment];
    uint32_t positions[kSparseSegment];
    size_t size = 0;
    for (size_t i = 0; i < segment.values.size(); ++i) {
      if (segment.marks[i] != GapMark::kNone) continue;
      positions[size] = segment.run.positions[i];
      values[size++] = segment.values[i];
    }
    WriteSparseValues({values, size}, positions, rounding_, out);
  }

  uint64_t End(size_t s) const {
    uint64_t end = 0;
    std::memcpy(&end, payload_.data() + front_.ends_at() + 8 * s, sizeof(end));
    return end;
  }
  void PutEnd(size_t s, uint64_t end) const {
    std::memcpy(payload_.data() + front_.ends_at() + 8 * s, &end, sizeof(end));
  }

  const SparseMessage& message_;
  const SparseRounding& rounding_;
  Workspace& work_;
  std::span<uint8_t> payload_;
  SparseFront front_;
  uint8_t* data_ = nullptr;
};

size_t WriteDrawn(const SparseSelection& kept, const SparseRounding& rounding, Workspace& work,
                  uint8_t* payload) {
  const size_t size = kept.values.size();
  const auto segment = [&](size_t s, int) {
    const size_t begin = s * kSparseSegment;
    WriteSparseValues(kept.values.subspan(begin, SparseSegmentSize(size, s)),
                      kept.positions.data() + begin, rounding,
                      payload + s * SparseValueBytes(kSparseSegment, rounding.bits));
  };
  work.ParallelFor(SparseSegments(size), std::cref(segment));
  return SparseValueBytes(size, rounding.bits);
}

}  // namespace

Status BadSpecValue(const SpecPart& part, std::string_view key, std::string_view value,
                    std::string_view valid) {
  return InvalidArgument("codec '" + part.name + "': " + std::string(key) + "=" +
                         std::string(value) + " is not valid; use " + std::string(valid));
}

Result<KeptCount> KeptCount::Parse(const SpecPart& part) {
  const std::string_view k = SpecValue(part, "k", "");
  KeptCount count;
  if (!k.empty()) {
    if (!SpecValue(part, "ratio", "").empty()) {
      return InvalidArgument("codec '" + part.name +
                             "': ratio and k exclude each other; give one of them");
    }
    if (!ParseNumber(k, &count.k_) || count.k_ == 0) {
      return BadSpecValue(part, "k", k, "a whole number from 1");
    }
    return count;
  }
  const std::string_view ratio = SpecValue(part, "ratio", "0.01");
  if (!ParseNumber(ratio, &count.ratio_) || !(count.ratio_ > 0) || count.ratio_ > 1) {
    return BadSpecValue(part, "ratio", ratio, "a number above 0, up to 1");
  }
  return count;
}

std::string KeptCount::Text() const {
  return ratio_ > 0 ? "ratio=" + NumberText(ratio_) : "k=" + std::to_string(k_);
}

size_t KeptCount::Of(size_t n) const {
  if (ratio_ == 0) return std::min<size_t>(k_, n);
  const auto k = static_cast<size_t>(std::llround(ratio_ * static_cast<double>(n)));
  return std::min(std::max<size_t>(k, 1), n);
}

KeptCount KeptCount::WithRatio(double ratio) const {
  KeptCount count;
  count.ratio_ = ratio;
  return count;
}

std::vector<CodecParameter> KeptCount::Parameters() {
  return {{"ratio", "0.01", "above 0, up to 1: kept of all coordinates; at least one is"},
          {"k", "", "the number of coordinates to keep, instead of ratio"}};
}

Result<int> ParseSparseBits(const SpecPart& part) {
  const std::string_view text = SpecValue(part, "bits", "16");
  int bits = 0;
  if (ParseNumber(text, &bits) && IsSparseValueWidth(bits)) return bits;
  return BadSpecValue(part, "bits", text, "32, 16, 8 or 4");
}
CodecParameter SparseBitsParameter() {
  return {"bits", "16", "32, 16, 8 or 4: of a kept value"};
}

Result<bool> ParseYesOrNo(const SpecPart& part, std::string_view key,
                          std::string_view fallback) {
  const std::string_view text = SpecValue(part, key, fallback);
  if (text == "yes" || text == "no") return text == "yes";
  return BadSpecValue(part, key, text, "yes or no");
}

size_t SparseCodec::MaxFrameBytes(size_t n) const {
  const size_t front = FramePayloadOffset(kSparseParameterBytes);
  if (n == 0) return front;
  const size_t kept = MaxKept(n), segments = SparseSegments(kept);
  // Blocks of values end with their segment.
  const size_t last = kept - (segments - 1) * kSparseSegment;
  const size_t values = (segments - 1) * SparseValueBytes(kSparseSegment, form_.bits) +
                        SparseValueBytes(last, form_.bits);
  if (form_.placement == SparsePlacement::kDrawn) return front + values;
  // Blocks that are not full, because signs stand between the values, have norms all the same.
  return front + SparseFront{segments}.table_at() + GapCode::kMaxTableBytes + values +
         GapCode::MaxBits(kept, n) / 8 + segments;
}

Result<size_t> SparseCodec::Encode(std::span<const float> values, StreamKey key,
                                   Workspace& work, std::span<uint8_t> frame) const {
  EQ_RETURN_IF_ERROR(
      CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
  SparseMessage message;
  if (!values.empty()) {
    EQ_ASSIGN_OR_RETURN(message, Select(values, key, work));
  }
  const std::span<const float> kept = message.kept.values;
  const float largest = std::bit_cast<float>(AbsMaxBits(kept.data(), kept.size()));
  EQ_ASSIGN_OR_RETURN(const int exponent,
                      SparseExponent(largest, form_.bits, form_.stochastic));
  const SparseRounding rounding{form_.bits, exponent, form_.stochastic, RoundingKeys(key)};
  const SparseFormat format{form_.placement, form_.bits, exponent,
                            static_cast<uint32_t>(values.size() - kept.size()),
                            message.magnitude};
  const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(kSparseParameterBytes));
  const size_t size = form_.placement == SparsePlacement::kDrawn
                          ? WriteDrawn(message.kept, rounding, work, payload.data())
                          : ListedWriter(message, rounding, work, payload).Run();
  const auto parameters = WriteSparseParameters(format);
  FrameView view;
  view.codec = CodecId::kSparse;
  view.elements = values.size();
  view.key = key;
  view.parameters = parameters;
  view.payload = payload.first(size);
  return SealFrame(view, frame);
}

}  // namespace elastiquant
