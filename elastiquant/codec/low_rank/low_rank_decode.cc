#include <algorithm>
#include <atomic>
#include <functional>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/codec/low_rank/low_rank_format.h"
#include "elastiquant/codec/low_rank/matrix_factors.h"
#include "elastiquant/kernels/convert.h"

namespace elastiquant {
namespace {

constexpr size_t kDenseBlock = size_t{1} << 16;

struct Parameters {
  FactorFormat format;
  size_t tensors;
};
Result<Parameters> ReadParameters(const FrameView& frame) {
  if (frame.flags != 0) return BadParameters("low-rank frames have no flags");
  if (frame.parameters.size() != kLowRankParameters) {
    return BadParameters("low-rank frames have 8 bytes");
  }
  ByteReader reader(frame.parameters);
  uint8_t format = 0, reserved[3];
  uint32_t tensors = 0;
  reader.Read(&format);
  reader.Read(&reserved);
  reader.Read(&tensors);
  if (format > 1) return BadParameters("the format of the factors is unknown");
  if (reserved[0] != 0 || reserved[1] != 0 || reserved[2] != 0) {
    return BadParameters("the reserved bytes are not 0");
  }
  return Parameters{static_cast<FactorFormat>(format), tensors};
}

// One tensor as a frame has it.
struct CodedTensor {
  PlacedTensor tensor;
  bool dense = false;
  size_t rank = 0;
  std::span<const uint8_t> numbers;
};

class TensorReader {
 public:
  TensorReader(FactorFormat format, size_t elements, std::span<const uint8_t> records,
               std::span<const uint8_t> numbers)
      : format_(format), elements_(elements), records_(records), numbers_(numbers) {}

  bool done() const { return records_.remaining() == 0; }

  Result<CodedTensor> Next() {
    uint32_t rows = 0, cols = 0, rank = 0;
    records_.Read(&rows);
    records_.Read(&cols);
    records_.Read(&rank);
    if (rows == 0 || cols == 0) return BadPayload("a tensor has no values");
    const size_t left = elements_ - begin_;
    const uint64_t cells = uint64_t{rows} * cols;
    CodedTensor coded{{{rows, cols}, begin_, std::min<size_t>(cells, left)}, false, rank, {}};
    // Only the last matrix may be cut short, and only within its last row.
    const bool cut = cells > left;
    coded.dense = rank == kDenseRank;
    if (cut && (coded.dense || !done() || cells - left >= cols)) {
      return BadPayload("its tensors have more values than the frame");
    }
    if (!coded.dense && rank > std::min(rows, cols)) {
      return BadPayload("a rank exceeds what its matrix can have");
    }
    const size_t bytes = coded.dense ? 4 * coded.tensor.size
                                     : rank * (size_t{rows} + cols) * FactorBytes(format_);
    if (!numbers_.ReadSpan(bytes, &coded.numbers)) return BadPayload("it ends within a tensor");
    begin_ += coded.tensor.size;
    return coded;
  }

  Status Finish() const {
    if (begin_ != elements_) return BadPayload("its tensors have fewer values than the frame");
    if (numbers_.remaining() != 0) return BadPayload("bytes follow its last tensor");
    return Status::Ok();
  }

 private:
  const FactorFormat format_;
  const size_t elements_;
  ByteReader records_, numbers_;
  size_t begin_ = 0;
};

bool DecodeDense(const CodedTensor& coded, const DecodeSink& sink, Workspace& work) {
  const size_t n = coded.tensor.size;
  std::atomic<bool> finite{true};
  const auto block = [&](size_t item, int) {
    const size_t first = item * kDenseBlock;
    const size_t count = std::min(kDenseBlock, n - first);
    const uint8_t* const in = coded.numbers.data() + 4 * first;
    const auto unpack = [&](float* out) {
      return sink.how().add ? UnpackAddFp32(in, count, sink.how().weight, out)
                            : UnpackFp32(in, count, out);
    };
    if (!sink.PutChecked(coded.tensor.begin + first, unpack)) finite = false;
  };
  work.ParallelFor((n + kDenseBlock - 1) / kDenseBlock, std::cref(block));
  return finite;
}

void DecodeZeros(const CodedTensor& coded, const DecodeSink& sink) {
  for (float& v : std::span(sink.Room(coded.tensor.begin, 0), coded.tensor.size)) {
    v = sink.how().add ? v + sink.how().weight * 0.0f : 0.0f;
  }
}

bool DecodeFactors(FactorFormat format, const CodedTensor& coded, const DecodeSink& sink,
                   Workspace& work) {
  const TensorShape& shape = coded.tensor.shape;
  const size_t numbers = coded.rank * (shape.rows + shape.cols);
  const auto scratch = work.SharedScratch(Workspace::kCodecSlot, numbers * sizeof(float));
  const std::span<float> factors(reinterpret_cast<float*>(scratch.data()), numbers);
  if (!UnpackFactors(format, coded.numbers.data(), factors)) return false;
  const FactorView p{factors.data(), shape.rows, coded.rank};
  const FactorView q{factors.data() + coded.rank * shape.rows, shape.cols, coded.rank};
  return sink.PutChecked(coded.tensor.begin, [&](float* begin) {
    const std::span<float> out(begin, coded.tensor.size);
    return sink.how().add ? MultiplyAddFactors(p, q, shape, sink.how().weight, work, out)
                          : MultiplyFactors(p, q, shape, work, out);
  });
}

}  // namespace

Status DecodeLowRank(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const Parameters parameters, ReadParameters(frame));
  if (parameters.tensors > frame.payload.size() / kLowRankRecord) {
    return BadPayload("it is too short for its tensors");
  }
  const size_t records = parameters.tensors * kLowRankRecord;
  TensorReader reader(parameters.format, frame.elements, frame.payload.first(records),
                      frame.payload.subspan(records));
  while (!reader.done()) {
    EQ_ASSIGN_OR_RETURN(const CodedTensor coded, reader.Next());
    if (!coded.dense && coded.rank == 0) {
      DecodeZeros(coded, sink);
      continue;
    }
    const bool finite = coded.dense ? DecodeDense(coded, sink, work)
                                    : DecodeFactors(parameters.format, coded, sink, work);
    if (!finite) return BadPayload("a value is NaN or infinite");
  }
  return reader.Finish();
}

}  // namespace elastiquant
