#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "elastiquant/codec/first_error.h"
#include "elastiquant/codec/sparse/sparse_codec.h"
#include "elastiquant/codec/sparse/sparse_values.h"
#include "elastiquant/coding/float_code.h"
#include "elastiquant/coding/gap_code.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// Coordinates that are not kept are 0, which adds nothing.
void Clear(const DecodeSink& sink, size_t begin, size_t end) {
  if (!sink.how().add && begin < end) std::fill_n(sink.Room(begin, 0), end - begin, 0.0f);
}
// The coordinates of a segment: [begin, end), all of them cleared but for the kept ones. False
// if a value is not finite.
bool PutSegment(const DecodeSink& sink, size_t begin, size_t end, const uint32_t* positions,
                std::span<const float> values) {
  const uint32_t largest = AbsMaxBits(values.data(), values.size());
  float* const out = sink.Room(0, std::bit_cast<float>(largest));
  if (out == nullptr) return false;
  Clear(sink, begin, end);
  if (!sink.how().add) {
    for (size_t i = 0; i < values.size(); ++i) out[positions[i]] = values[i];
    return true;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float product = sink.how().weight * values[i];
    out[positions[i]] += product;
  }
  return true;
}

constexpr char kBadValue[] = "a value is not finite or out of range";

class ListedDecoder {
 public:
  ListedDecoder(const SparseFormat& format, size_t kept, std::span<const uint8_t> payload,
                const DecodeSink& sink)
      : format_(format),
        kept_(kept),
        payload_(payload),
        sink_(sink),
        front_{SparseSegments(kept)} {}

  Status Run(Workspace& work) {
    if (payload_.size() < front_.table_at()) return BadPayload("it ends before its segments");
    size_t table = 0;
    const auto code =
        GapCode::Read(payload_.subspan(front_.table_at()), format_.marked(), &table);
    if (!code.ok()) return BadPayload(code.status().message());
    data_ = payload_.subspan(front_.table_at() + table);
    if (format_.bits == kExactBits) {
      const auto floats = FloatCode::Read(data_, &table);
      if (!floats.ok()) return BadPayload(floats.status().message());
      floats_.emplace(*floats);
      data_ = data_.subspan(table);
    }
    EQ_RETURN_IF_ERROR(CheckFront());
    const GapDecoder gaps(*code);
    Status status =
        TryParallelFor(work, front_.segments, [&](size_t s, int) { return Segment(s, gaps); });
    Clear(sink_, size_t{Last(front_.segments - 1)} + 1, sink_.size());
    return status;
  }

 private:
  // What the segments must have before one of them is written.
  Status CheckFront() const {
    uint64_t end = 0;
    for (size_t s = 0; s < front_.segments; ++s) {
      if (Last(s) >= sink_.size() || (s > 0 && Last(s) <= Last(s - 1))) {
        return BadPayload("the last positions of its segments are out of order");
      }
      if (End(s) < end || End(s) > data_.size()) {
        return BadPayload("a segment lies outside of it");
      }
      end = End(s);
    }
    if (end != data_.size()) return BadPayload("its segments do not end where it does");
    return Status::Ok();
  }

  Status Segment(size_t s, const GapDecoder& gaps) const {
    const size_t size = SparseSegmentSize(kept_, s);
    const uint32_t next = s == 0 ? 0 : Last(s - 1) + 1, last = Last(s);
    const uint64_t begin = s == 0 ? 0 : End(s - 1);
    const std::span<const uint8_t> bytes = data_.subspan(begin, End(s) - begin);
    uint32_t positions[kSparseSegment];
    GapMark marks[kSparseSegment];
    BitReader reader(bytes);
    if (!gaps.Decode(reader, next, last, {positions, size},
                     {marks, format_.marked() ? size : 0})) {
      return BadPayload("a segment's positions do not end with its last");
    }
    if (reader.Overrun() || !reader.SkipToByte()) {
      return BadPayload("a segment's bits are too few");
    }
    size_t valued = size;
    for (size_t i = 0; format_.marked() && i < size; ++i) {
      valued -= marks[i] != GapMark::kNone ? 1 : 0;
    }
    const std::span<const uint8_t> coded = bytes.subspan(reader.position() / 8);
    float values[kSparseSegment];
    EQ_RETURN_IF_ERROR(Values(coded, {values, valued}));
    if (valued < size) Spread({marks, size}, valued, values);
    const bool finite = PutSegment(sink_, next, size_t{last} + 1, positions, {values, size});
    return finite ? Status::Ok() : BadPayload(kBadValue);
  }

  Status Values(std::span<const uint8_t> coded, std::span<float> values) const {
    bool good = false;
    if (floats_) {
      BitReader reader(coded);
      good = floats_->Decode(reader, values);
      if (!reader.AtFinish()) return BadPayload("a segment's values do not fill its end");
    } else {
      if (coded.size() != SparseValueBytes(values.size(), format_.bits)) {
        return BadPayload("a segment's values do not fill its end");
      }
      good = ReadSparseValues(coded.data(), format_.bits, format_.exponent, values);
    }
    return good ? Status::Ok() : BadPayload(kBadValue);
  }

  // Puts the signs' magnitudes between the values, from the back, where there is room.
  void Spread(std::span<const GapMark> marks, size_t valued, float* values) const {
    for (size_t i = marks.size(); i-- > 0;) {
      if (marks[i] == GapMark::kNone) {
        values[i] = values[--valued];
      } else {
        values[i] = marks[i] == GapMark::kMinus ? -format_.magnitude : format_.magnitude;
      }
    }
  }

  uint32_t Last(size_t s) const {
    uint32_t last = 0;
    std::memcpy(&last, payload_.data() + 4 * s, sizeof(last));
    return last;
  }
  uint64_t End(size_t s) const {
    uint64_t end = 0;
    std::memcpy(&end, payload_.data() + front_.ends_at() + 8 * s, sizeof(end));
    return end;
  }

  const SparseFormat& format_;
  const size_t kept_;
  const std::span<const uint8_t> payload_;
  const DecodeSink& sink_;
  const SparseFront front_;
  std::span<const uint8_t> data_;
  std::optional<FloatDecoder> floats_;  // of exact values
};

Status DecodeDrawn(const SparseFormat& format, size_t kept, const FrameView& frame,
                   const DecodeSink& sink, Workspace& work) {
  const size_t segment_bytes = SparseValueBytes(kSparseSegment, format.bits);
  const size_t whole = (SparseSegments(kept) - 1) * kSparseSegment;
  const size_t expected =
      whole / kSparseSegment * segment_bytes + SparseValueBytes(kept - whole, format.bits);
  if (frame.payload.size() != expected) return BadPayload("its values do not fill it");
  const std::span<const uint32_t> positions =
      SelectDrawn(MakeLaneKeys(frame.key), frame.elements, kept, work);
  std::atomic<bool> good{true};
  const auto segment = [&](size_t s, int) {
    const size_t begin = s * kSparseSegment, size = SparseSegmentSize(kept, s);
    float values[kSparseSegment];
    const bool final = begin + size == kept;
    const size_t first = s == 0 ? 0 : positions[begin - 1] + size_t{1};
    const size_t end = final ? frame.elements : positions[begin + size - 1] + size_t{1};
    if (!ReadSparseValues(frame.payload.data() + s * segment_bytes, format.bits,
                          format.exponent, {values, size}) ||
        !PutSegment(sink, first, end, positions.data() + begin, {values, size})) {
      good = false;
    }
  };
  work.ParallelFor(SparseSegments(kept), std::cref(segment));
  return good ? Status::Ok() : BadPayload(kBadValue);
}

}  // namespace

Status DecodeSparse(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const SparseFormat format, ReadSparseParameters(frame));
  const size_t kept = frame.elements - format.dropped;
  if (kept == 0) {
    if (!frame.payload.empty()) return BadPayload("bytes without coordinates");
    Clear(sink, 0, sink.size());
    return Status::Ok();
  }
  if (format.placement == SparsePlacement::kDrawn) {
    return DecodeDrawn(format, kept, frame, sink, work);
  }
  return ListedDecoder(format, kept, frame.payload, sink).Run(work);
}

}  // namespace elastiquant
