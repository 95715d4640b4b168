#include "elastiquant/codec/sparse_write.h"

#include <cstring>
#include <functional>
#include <mutex>

#include "elastiquant/coding/gap_code.h"

namespace elastiquant {
namespace {

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

size_t MaxSparseFrameBytes(size_t n, size_t kept, int bits, SparsePlacement placement) {
  const size_t front = FramePayloadOffset(kSparseParameterBytes);
  if (kept == 0) return front;
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
  const SparseFormat format{placement, rounding.bits, rounding.exponent,
                            static_cast<uint32_t>(dropped), message.magnitude};
  const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(kSparseParameterBytes));
  const size_t size = placement == SparsePlacement::kDrawn
                          ? WriteDrawn(message.kept, rounding, work, payload.data())
                          : ListedWriter(message, rounding, work, payload).Run();
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
