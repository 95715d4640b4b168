#include "elastiquant/codec/sparse/sparse_write.h"

#include <cstring>
#include <functional>
#include <mutex>
#include <optional>

#include "elastiquant/coding/float_code.h"
#include "elastiquant/coding/gap_code.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// The bits of one coordinate at the most (a code, what follows it, a mark, and an exact value),
// and what a BitWriter stores beyond.
constexpr size_t kMaxSegmentBytes =
    kSparseSegment * (kMaxPrefixBits + 30 + 1 + FloatCode::kMaxBits) / 8 + 32;

// Writes the payload of listed positions.
class ListedWriter {
 public:
  ListedWriter(const SparseMessage& message, const SparseRounding& rounding, Workspace& work,
               std::span<uint8_t> payload)
      : message_(message),
        rounding_(rounding),
        work_(work),
        payload_(payload),
        front_{SparseSegments(message.kept.positions.size())} {
    if (rounding_.bits == kExactBits) ChooseExact();
  }
  // Of values: kExactBits may have become 32.
  int bits() const { return rounding_.bits; }

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
    size_t table = code.Write(payload_.data() + front_.table_at());
    if (floats_) table += floats_->Write(payload_.data() + front_.table_at() + table);
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
  void ChooseExact() {
    const std::span<const float> values = message_.kept.values;
    const uint32_t largest = AbsMaxBits(values.data(), values.size());
    FloatCounts counts(static_cast<int>(largest >> 23));
    counts.Add(values);
    rounding_.bits = 32;
    if (values.empty()) return;
    const FloatCode code(counts);
    const uint64_t bytes = code.Bits(counts) / 8 + front_.segments + FloatCode::kMaxTableBytes;
    if (bytes >= SparseValueBytes(values.size(), 32)) return;
    rounding_.bits = kExactBits;
    floats_ = code;
  }

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
        const bool marked = message.Marked(values[i]);
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
    return (code.Bits(counts) + 7) / 8 + ValueBytes(segment);
  }

  size_t ValueBytes(const Segment& segment) const {
    if (!floats_) return SparseValueBytes(segment.valued, rounding_.bits);
    FloatCounts counts(floats_->top());
    counts.Add(segment.values);
    return (floats_->Bits(counts) + 7) / 8;
  }

  // Returns their bytes.
  size_t WriteValues(const Segment& segment, uint8_t* out, size_t room) const {
    size_t size = SparseValueBytes(segment.valued, rounding_.bits);
    if (floats_) {
      BitWriter writer({out, room});
      floats_->Encode(segment.values, writer);
      writer.Finish(&size);
    } else if (segment.valued == segment.values.size()) {
      WriteSparseValues(segment.values, segment.run.positions.data(), rounding_, out);
    } else {
      WriteUnmarked(segment, out);
    }
    return size;
  }

  void Write(size_t s, const GapCode& code) const {
    const Segment segment(message_, s);
    uint8_t bytes[kMaxSegmentBytes];
    BitWriter writer(bytes);
    code.Encode(segment.run, writer);
    size_t size = 0;
    writer.Finish(&size);
    size += WriteValues(segment, bytes + size, sizeof(bytes) - size);
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
  SparseRounding rounding_;
  Workspace& work_;
  std::span<uint8_t> payload_;
  SparseFront front_;
  std::optional<FloatCode> floats_;  // of exact values
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

size_t MaxSparseFrameBytes(size_t n, size_t kept, int bits, SparsePlacement placement) {
  const size_t front = FramePayloadOffset(kSparseParameterBytes);
  if (kept == 0) return front;
  if (bits == kExactBits) bits = 32;
  const size_t segments = SparseSegments(kept);
  // Blocks of values end with their segment.
  const size_t last = kept - (segments - 1) * kSparseSegment;
  const size_t values =
      (segments - 1) * SparseValueBytes(kSparseSegment, bits) + SparseValueBytes(last, bits);
  if (placement == SparsePlacement::kDrawn) return front + values;
  // Blocks that are not full, because signs stand between the values, have norms all the same.
  return front + SparseFront{segments}.table_at() + GapCode::kMaxTableBytes + values +
         GapCode::MaxBits(kept, n) / 8 + segments;
}

size_t WriteSparseFrame(const SparseMessage& message, size_t elements,
                        SparsePlacement placement, const SparseRounding& rounding,
                        StreamKey key, Workspace& work, std::span<uint8_t> frame) {
  const size_t dropped = elements - message.kept.values.size();
  SparseFormat format{placement, rounding.bits, rounding.exponent,
                      static_cast<uint32_t>(dropped), message.magnitude};
  const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(kSparseParameterBytes));
  size_t size = 0;
  if (placement == SparsePlacement::kDrawn) {
    size = WriteDrawn(message.kept, rounding, work, payload.data());
  } else {
    ListedWriter writer(message, rounding, work, payload);
    size = writer.Run();
    format.bits = writer.bits();
  }
  const auto parameters = WriteSparseParameters(format);
  FrameView view;
  view.codec = CodecId::kSparse;
  view.elements = elements;
  view.key = key;
  view.parameters = parameters;
  view.payload = payload.first(size);
  return SealFrame(view, frame);
}

}  // namespace elastiquant
