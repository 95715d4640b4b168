#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "elastiquant/codec/dither/dither_code.h"
#include "elastiquant/codec/dither/dither_rate.h"
#include "elastiquant/codec/dither/dither_sample.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {
namespace {

// More states are faster (32 in place of 8: decoding 6 times, encoding 3 times), but each costs
// 24 bits, which the rate must make up for. Below 2^18 coordinates, up to 1/36 bit of each is
// spent on them, which raises the NMSE by 5 to 7 %.
size_t LanesFor(size_t size) {
  const auto worth = [&](size_t lanes) { return size >= 24 * 36 * lanes; };
  return size >= 1u << 18 ? 128 : worth(32) ? 32 : worth(8) ? 8 : 1;
}

// Where a tile's words and bytes are collected, and its classes.
struct TileScratch {
  explicit TileScratch(size_t size)
      : blocks(DitherBlocks(size)),
        coded(DitherLayout::MaxTileBytes(size) + kMaxDitherBlockBytes) {}
  size_t total() const { return 2 * coded + blocks; }
  size_t blocks, coded;  // bytes
};

class TileEncoder {
 public:
  TileEncoder(const DitherFormat& format, std::span<const float> values, LaneKeys keys,
              std::span<const float> means)
      : format_(format),
        model_(GetDitherModel(format.density, format.phase)),
        deltas_(GetDitherModel(DitherDensity::kLaplace, kNeutralPhase)),
        scale_(MakeDitherScale(format.step > 0 ? format.step : 1)),
        values_(values),
        keys_(keys),
        means_(means) {}

  // Returns how many bytes of `out` are used; sets *raw if it holds plain values.
  size_t Run(size_t begin, size_t size, std::span<uint8_t> scratch, std::span<uint8_t> out,
             bool* raw) {
    const TileScratch parts(size);
    words_ = scratch.first(parts.coded);
    bytes_ = scratch.subspan(parts.coded, parts.coded);
    const std::span<uint8_t> classes = scratch.subspan(2 * parts.coded, parts.blocks);
    ChooseClasses(begin, classes);
    writer_.lanes = LanesFor(size);
    std::fill_n(writer_.states, writer_.lanes, kRansLow);
    writer_.words = words_.data();
    writer_.bytes = bytes_.data();
    *raw = false;
    for (size_t group = (parts.blocks - 1) / kDitherGroup + 1; group-- > 0 && !*raw;) {
      const size_t at = group * kDitherGroup;
      *raw = !EncodeGroup(classes, at, std::min(kDitherGroup, parts.blocks - at), begin, size);
    }
    *raw = *raw || kDitherTileHeader + 4 * writer_.lanes + Written() > out.size();
    return *raw ? CopyValues(begin, size, out) : Finish(classes[0], out);
  }

 private:
  void ChooseClasses(size_t begin, std::span<uint8_t> classes) {
    DitherClassesFor(means_.subspan(begin / kDitherBlock, classes.size()), scale_,
                     format_.phase, classes.data());
    delta_class_ = DitherDifferences(classes).BestClass();
  }

  size_t Written() const {
    return static_cast<size_t>(writer_.words - words_.data()) +
           static_cast<size_t>(writer_.bytes - bytes_.data());
  }
  // How many blocks there is room for.
  size_t Room() const { return (words_.size() - Written()) / kMaxDitherBlockBytes; }

  bool EncodeGroup(std::span<const uint8_t> classes, size_t at, size_t count, size_t begin,
                   size_t size) {
    DitherOrder order;
    SortDitherBlocks(classes.data() + at, count, &order);
    constexpr size_t kGroupSize = kDitherGroup * kDitherBlock;
    const size_t next =
        begin + (at > 0 ? at * kDitherBlock - kGroupSize : size + kDitherTile - kGroupSize);
    const float* soon = next + kGroupSize <= values_.size() ? values_.data() + next : nullptr;
    const std::span<const float> group = values_.subspan(
        begin + at * kDitherBlock, std::min(kGroupSize, size - at * kDitherBlock));
    for (int id = kDitherClasses - 1; id > 0; --id) {
      const std::span<const uint16_t> blocks(order.blocks + order.ends[id - 1],
                                             order.blocks + order.ends[id]);
      const float* mine = soon == nullptr ? nullptr : soon + order.ends[id - 1] * kDitherBlock;
      if (!EncodeBlocks(id, blocks, group, mine)) return false;
    }
    return EncodeClasses(classes, at, count);
  }

  // Those of one class, the last one first: it may be short.
  bool EncodeBlocks(int id, std::span<const uint16_t> blocks, std::span<const float> group,
                    const float* soon) {
    const auto first = static_cast<uint32_t>(group.data() - values_.data());
    size_t left = blocks.size();
    if (left > 0 && DitherBlockLength(group.size(), blocks[left - 1]) < kDitherBlock) {
      if (Room() == 0) return false;
      const size_t at = blocks[--left] * kDitherBlock;
      const size_t length = group.size() - at;
      const uint32_t place = first + static_cast<uint32_t>(at);
      int32_t indices[kDitherBlock];
      DitherQuantize(group.data() + at, length, keys_, place, scale_, indices);
      EncodeDitherIndices(indices, ShapeOfBlock(keys_, place, length), model_, id, &writer_);
    }
    while (left > 0) {
      const size_t count = std::min(left, Room());
      if (count == 0) return false;
      left -= count;
      const float* mine = soon == nullptr ? nullptr : soon + left * kDitherBlock;
      EncodeDitherRun(group.data(), {blocks.data() + left, count, first, mine}, keys_, scale_,
                      model_, id, &writer_);
    }
    return true;
  }

  bool EncodeClasses(std::span<const uint8_t> classes, size_t at, size_t count) {
    int32_t indices[kDitherBlock];
    for (size_t part = (count - 1) / kDitherBlock + 1; part-- > 0;) {
      if (Room() == 0) return false;
      const size_t from = at + part * kDitherBlock;
      const size_t length = std::min(kDitherBlock, at + count - from);
      for (size_t i = 0; i < length; ++i) {
        const size_t b = from + i;
        indices[DitherTurn(i)] = classes[b] - classes[b > 0 ? b - 1 : 0];
      }
      EncodeDitherIndices(indices, PlainShape(length), deltas_, delta_class_, &writer_);
    }
    return true;
  }

  // Header, states, words, bytes.
  size_t Finish(uint8_t first_class, std::span<uint8_t> out) {
    uint8_t* next = out.data();
    *next++ = static_cast<uint8_t>(std::countr_zero(writer_.lanes));
    *next++ = static_cast<uint8_t>(delta_class_);
    *next++ = first_class;
    std::reverse(writer_.states, writer_.states + writer_.lanes);
    std::memcpy(next, writer_.states, 4 * writer_.lanes);
    next += 4 * writer_.lanes;
    const auto words = static_cast<size_t>(writer_.words - words_.data());
    ReverseWords(words_.data(), words / 2);
    next = std::copy_n(words_.data(), words, next);
    next = std::copy(bytes_.data(), writer_.bytes, next);
    return static_cast<size_t>(next - out.data());
  }

  size_t CopyValues(size_t begin, size_t size, std::span<uint8_t> out) const {
    out[0] = kDitherRawTile;
    std::memcpy(out.data() + kDitherRawTileHeader, values_.data() + begin,
                size * sizeof(float));
    return kDitherRawTileHeader + size * sizeof(float);
  }

  const DitherFormat& format_;
  const DitherModel& model_;
  const DitherModel& deltas_;
  const DitherScale scale_;
  const std::span<const float> values_;
  const LaneKeys keys_;
  const std::span<const float> means_;
  std::span<uint8_t> words_, bytes_;
  DitherWriter writer_;
  int delta_class_ = 1;
};

class DitherEncoder {
 public:
  DitherEncoder(const DitherSpec& spec, std::span<const float> values, StreamKey key,
                Workspace& work, std::span<uint8_t> frame)
      : spec_(spec),
        values_(values),
        layout_{values.size()},
        key_(key),
        work_(work),
        frame_(frame),
        blocks_(DitherBlocks(values.size())),
        scratch_(work.SharedScratch(Workspace::kCodecSlot, blocks_ * (sizeof(float) + 1))),
        means_(reinterpret_cast<float*>(scratch_.data()), blocks_),
        classes_(scratch_.subspan(blocks_ * sizeof(float), blocks_)) {}

  Result<size_t> Run() {
    EQ_RETURN_IF_ERROR(Measure());
    if (format_.dithered > 0) EQ_RETURN_IF_ERROR(ChooseStep());
    const std::span<uint8_t> payload =
        frame_.subspan(FramePayloadOffset(kDitherParameterBytes));
    const size_t size = EncodeTiles(payload);
    const auto parameters = WriteDitherParameters(format_);
    FrameView view;
    view.codec = CodecId::kDither;
    view.elements = values_.size();
    view.key = key_;
    view.parameters = parameters;
    view.payload = payload.first(size);
    return SealFrame(view, frame_);
  }

 private:
  size_t Length(size_t block) const { return DitherBlockLength(layout_.n, block); }

  // Of a dither that is not the frame's own: what is sent has no mean error only if its step
  // does not depend on how it is rounded.
  LaneKeys SampleKeys() const {
    constexpr uint64_t kSalt = 0x7374657053616C74;  // "stepSalt"
    return MakeLaneKeys({Mix64(key_.value ^ kSalt)});
  }

  Status Measure() {
    FirstError error;
    const size_t blocks = DitherBlocks(layout_.n);
    // The last tile first: what is encoded first may then still be in a cache.
    const auto measure = [&](size_t item, int) {
      const size_t tile = layout_.tiles() - 1 - item;
      const size_t first = tile * (kDitherTile / kDitherBlock);
      const size_t end = std::min(blocks, first + kDitherTile / kDitherBlock);
      DitherBlockMeans(values_.data() + tile * kDitherTile, layout_.tile_size(tile),
                       means_.data() + first);
      for (size_t b = first; b < end; ++b) {
        if (!std::isfinite(means_[b])) return error.Report(b, NonFiniteAt(b));
      }
    };
    work_.ParallelFor(layout_.tiles(), std::cref(measure));
    EQ_RETURN_IF_ERROR(error.status());
    const size_t whole = layout_.n / kDitherBlock;
    scales_.Add(means_.first(whole), kDitherBlock);
    if (whole < blocks) scales_.Add(means_.subspan(whole), Length(whole));
    format_.dithered = CountDithered(0, layout_.n);
    // As integers, which keep their order and have no NaN to look out for.
    int32_t top = 0;
    for (float mean : means_) top = std::max(top, std::bit_cast<int32_t>(mean));
    top_ = std::bit_cast<float>(top);
    return Status::Ok();
  }

  Status NonFiniteAt(size_t block) const {
    size_t i = block * kDitherBlock;
    const size_t end = i + Length(block);
    while (i < end && std::isfinite(values_[i])) ++i;
    if (i == end) {  // only rounding has made the mean infinite
      return OutOfRange("the values of block " + std::to_string(block) +
                        " are too close to the largest float: scale them down");
    }
    return NonFinite("the value at coordinate " + std::to_string(i) + " is " +
                     std::to_string(values_[i]));
  }

  Status ChooseStep() {
    const double least = LeastLog2Step();
    double log2_step = spec_.nmse > 0 ? StepForError() : AtMostLog2Step(StepForRate());
    if (spec_.nmse > 0 && log2_step < least) {
      return OutOfRange("nmse=" + std::to_string(spec_.nmse) +
                        " needs a step 2^24 times smaller than the largest value: ask for a "
                        "larger error");
    }
    log2_step = std::max(log2_step, least);
    const double step = ExactExp2(log2_step);
    if (step > static_cast<double>(std::numeric_limits<float>::max()) / 4) return TooLarge();
    format_.step = std::max(static_cast<float>(step), 0x1p-149f);
    return CheckRange();
  }

  // Indices stay below 2^23.
  double LeastLog2Step() const {
    return ExactLog2(static_cast<double>(top_) * kDitherBlock) - 23;
  }

  // Half a bit a coordinate costs no natural message as much error. What cannot meet its rate
  // with less, such as one of a few values, is sent with more bits.
  double AtMostLog2Step(double log2_step) const {
    double squares = 0;  // at least, of blocks as flat as can be
    for (size_t b = 0; b < means_.size(); ++b) {
      const double mean = means_[b];
      squares += mean * mean * static_cast<double>(Length(b));
      // More of them only add to it.
      if ((b % 256 == 255 || b + 1 == means_.size()) && squares > 0 &&
          log2_step <= StepOfError(kMostDitherError * squares)) {
        return log2_step;
      }
    }
    const double norm = L2Norm();  // another pass over the values, of sparse and short messages
    return std::min(log2_step, StepOfError(kMostDitherError * (norm * norm)));
  }
  // The log2 of the step that gives the message this squared error.
  double StepOfError(double squares) const {
    return ExactLog2(12 * squares / format_.dithered) / 2;
  }

  double StepForError() {
    const double norm = L2Norm();
    const double log2_step = StepOfError(spec_.nmse * (norm * norm));
    ChooseDensity(DitherSample(values_, means_, classes_, SampleKeys(), log2_step), log2_step);
    return log2_step;
  }
  // Squares of floats and their sums are normal doubles.
  double L2Norm() const {
    double squares = 0;
    for (size_t tile = 0; tile < layout_.tiles(); ++tile) {
      squares += SumSquares(values_.data() + tile * kDitherTile, layout_.tile_size(tile));
    }
    return std::sqrt(squares);
  }

  // The density and the phase that take the fewest bits at about this step.
  void ChooseDensity(const DitherSample& sample, double log2_step) {
    constexpr DitherDensity kBoth[] = {DitherDensity::kLaplace, DitherDensity::kGauss};
    double least = std::numeric_limits<double>::infinity();
    for (DitherDensity density : kBoth) {
      if (spec_.density && density != *spec_.density) continue;
      const int phase = scales_.BestPhase(density, log2_step);
      const double bits = sample.Bits(density, phase, DitherStep(log2_step), 8);
      if (bits >= least) continue;
      least = bits;
      format_.density = density;
      format_.phase = phase;
    }
  }

  // The tables tell how the bits change with the step, a sample what they are.
  double StepForRate() {
    const double n = static_cast<double>(layout_.n);
    const double whole = spec_.bits * n;
    // Short messages are not made worse for the sake of the header.
    const double overhead =
        8.0 * static_cast<double>(FramePayloadOffset(kDitherParameterBytes) +
                                  layout_.places().tiles_at()) +
        StateBits();
    const double budget = std::max(whole - overhead, 0.8 * whole);
    const double guess = budget - 2.5 * static_cast<double>(DitherBlocks(layout_.n));
    double low = scales_.LeastStep(), high = scales_.LargestStep();
    double log2_step =
        scales_.StepFor(DitherDensity::kLaplace, kNeutralPhase, guess, low, high);
    const DitherSample sample(values_, means_, classes_, SampleKeys(), log2_step);
    ChooseDensity(sample, log2_step);
    if (sample.empty()) return log2_step;
    // An eighth of the sample is enough to come near. Values that are few or discrete want more
    // than one round after it, and steps that stay between those that were too small and too
    // large.
    double classes = budget - guess, moved = 1;
    for (int round = 0; round < 8 && std::abs(moved) > 0.02; ++round) {
      if (round == 1) format_.phase = scales_.BestPhase(format_.density, log2_step);
      if (round > 0) classes = ClassBits(log2_step);
      const double wanted = std::max(budget - classes, 0.2 * budget);
      const double real = sample.Bits(format_.density, format_.phase, DitherStep(log2_step),
                                      round == 0 ? 8 : 1);
      if (round > 0) (real > wanted ? low : high) = log2_step;
      const double expected = scales_.Bits(format_.density, format_.phase, log2_step);
      double next = scales_.StepFor(format_.density, format_.phase, wanted * expected / real,
                                    log2_step - 4, log2_step + 4);
      if (next <= low || next >= high) next = (low + high) / 2;
      moved = round == 0 ? 1 : next - log2_step;
      log2_step = next;
    }
    return log2_step;
  }
  // A state is written with 32 bits and has taken up 8 of them, about.
  double StateBits() const {
    const size_t last = layout_.tiles() - 1;
    return 24.0 * static_cast<double>(last * LanesFor(kDitherTile) +
                                      LanesFor(layout_.tile_size(last))) +
           24.0 * static_cast<double>(layout_.tiles());
  }
  double ClassBits(double log2_step) const {
    DitherClassesFor(means_, MakeDitherScale(DitherStep(log2_step)), format_.phase,
                     classes_.data());
    const DitherDifferences differences(classes_);
    return differences.Bits(differences.BestClass());
  }

  static Status TooLarge() {
    return OutOfRange(
        "the values are too large to be dithered at this rate: the result may "
        "exceed the largest float; scale them down or ask for more bits");
  }
  Status CheckRange() const {
    const double most = static_cast<double>(std::numeric_limits<float>::max());
    const double step = format_.step;
    if (static_cast<double>(top_) * kDitherBlock + step < most) return Status::Ok();
    double largest = 0;
    for (float v : values_) largest = std::max(largest, std::abs(static_cast<double>(v)));
    return largest + step < most * (1 - 0x1p-20) ? Status::Ok() : TooLarge();
  }

  size_t EncodeTiles(std::span<uint8_t> payload) {
    std::atomic<uint32_t> exact{0};
    const TilePlaces places = layout_.places();
    TileWriter tiles(places, payload, work_.threads() == 1);
    const auto encode = [&](size_t tile, int thread) {
      const size_t begin = tile * kDitherTile;
      const size_t size = layout_.tile_size(tile);
      const auto scratch = work_.Scratch(thread, TileScratch(size).total());
      TileEncoder encoder(format_, values_, MakeLaneKeys(key_), means_);
      bool raw;
      const size_t used = encoder.Run(begin, size, scratch, tiles.Room(tile), &raw);
      if (raw) exact += CountDithered(begin, size);
      tiles.Wrote(tile, used);
    };
    work_.ParallelFor(layout_.tiles(), std::cref(encode));
    format_.dithered -= exact;
    if (format_.dithered == 0) format_.step = 0;
    return tiles.Finish();
  }
  uint32_t CountDithered(size_t begin, size_t size) const {
    const std::span<const float> means =
        means_.subspan(begin / kDitherBlock, DitherBlocks(size));
    const auto zeros = static_cast<size_t>(std::count(means.begin(), means.end(), 0.0f));
    size_t count = (means.size() - zeros) * kDitherBlock;
    // The last block may be short.
    if (size > 0 && means.back() != 0) count -= means.size() * kDitherBlock - size;
    return static_cast<uint32_t>(count);
  }

  const DitherSpec& spec_;
  const std::span<const float> values_;
  const DitherLayout layout_;
  const StreamKey key_;
  Workspace& work_;
  const std::span<uint8_t> frame_;
  const size_t blocks_;
  const std::span<uint8_t> scratch_;
  const std::span<float> means_;  // absolute, of each block
  const std::span<uint8_t> classes_;
  DitherScales scales_;
  DitherFormat format_;
  float top_ = 0;
};

}  // namespace

size_t MaxDitherFrameBytes(size_t n) {
  const DitherLayout layout{n};
  return FramePayloadOffset(kDitherParameterBytes) + layout.places().MaxPayloadBytes();
}

Result<size_t> EncodeDither(const DitherSpec& spec, std::span<const float> values,
                            StreamKey key, Workspace& work, std::span<uint8_t> frame) {
  return DitherEncoder(spec, values, key, work, frame).Run();
}

}  // namespace elastiquant
