// Natural compression (Horvath et al., 2019): each value rounded to a power of two, unbiased.
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "elastiquant/codec/first_error.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/tile_geometry.h"
#include "elastiquant/codec/tiled_payload.h"
#include "elastiquant/coding/rans.h"
#include "elastiquant/kernels/natural.h"
#include "elastiquant/kernels/pack.h"

namespace elastiquant {
namespace {

constexpr size_t kParameterBytes = 4;
constexpr uint8_t kPlain = 0, kRans = 2;  // as in IndexCoding
constexpr int kExponentBits = 8;
// (b - r)(r - a) / r^2 for powers a, b = 2a is largest at r = 4/3 a.
constexpr double kNmseBound = 0.125;

// Payload: [tile ends u64, with rANS only] and for each tile signs, then exponents.
struct Layout {
  Layout(bool is_coded, size_t n)
      : coded(is_coded),
        elements(n),
        places(table(), 0, TilePlaces::TableBytes(table(), tiles()), tiles(),
               MaxBytes(kMaxTile), tiles() == 0 ? 0 : MaxBytes(Tile(tiles() - 1).size)) {}

  TileTable table() const { return coded ? TileTable::kEnds : TileTable::kNone; }
  size_t tiles() const { return CeilDivide(elements, kMaxTile); }
  Piece Tile(size_t tile) const {
    const size_t begin = tile * kMaxTile;
    return {begin, std::min(kMaxTile, elements - begin)};
  }
  static size_t SignBytes(size_t size) { return PackedBytes(size, 1); }
  size_t MaxBytes(size_t size) const {
    return SignBytes(size) + (coded ? MaxRansBytes(size, kExponentBits) : size);
  }

  bool coded;
  size_t elements;
  TilePlaces places;
};

Status CannotRound(float value, size_t coordinate) {
  const std::string where =
      std::to_string(value) + " at coordinate " + std::to_string(coordinate);
  if (!std::isfinite(value)) return NonFinite("the value is " + where);
  return OutOfRange("the value " + where +
                    " is above 2^127 and could be rounded to infinity: scale the values down");
}

class NaturalCodec : public Codec {
 public:
  explicit NaturalCodec(bool coded) : coded_(coded) {}

  std::string spec() const override { return coded_ ? "natural|rans" : "natural"; }
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }
  std::optional<double> NmseBound(size_t) const override { return kNmseBound; }
  size_t granule() const override { return 1; }
  size_t MaxFrameBytes(size_t n) const override {
    const Layout layout(coded_, n);
    return FramePayloadOffset(kParameterBytes) + layout.places.MaxPayloadBytes();
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    const auto payload = frame.subspan(FramePayloadOffset(kParameterBytes));
    const Layout layout(coded_, values.size());
    TileWriter tiles(layout.places, payload, work.threads() == 1);
    FirstError error;
    const auto encode = [&](size_t tile, int thread) {
      const Piece piece = layout.Tile(tile);
      const Status status = EncodeTile(values.subspan(piece.begin, piece.size),
                                       {MakeLaneKeys(key), static_cast<uint32_t>(piece.begin)},
                                       work.Scratch(thread, 2 * kMaxTile), tile, &tiles);
      if (!status.ok()) error.Report(piece.begin, status);
    };
    work.ParallelFor(layout.tiles(), std::cref(encode));
    EQ_RETURN_IF_ERROR(error.status());
    const size_t size = tiles.Finish();
    const uint8_t parameters[kParameterBytes] = {coded_ ? kRans : kPlain};
    FrameView view;
    view.codec = CodecId::kNatural;
    view.elements = values.size();
    view.key = key;
    view.parameters = parameters;
    view.payload = payload.first(size);
    return SealFrame(view, frame);
  }

 private:
  Status EncodeTile(std::span<const float> v, RandomRun random, std::span<uint8_t> scratch,
                    size_t tile, TileWriter* tiles) const {
    const auto exponents = scratch.first(v.size());
    const auto signs = scratch.subspan(kMaxTile, v.size());
    const size_t good =
        SplitNatural(v.data(), v.size(), random, exponents.data(), signs.data());
    if (good < v.size()) return CannotRound(v[good], random.first + good);
    const auto out = tiles->Room(tile);
    const size_t sign_bytes = Layout::SignBytes(v.size());
    PackCodes(signs.data(), v.size(), 1, out.data());
    if (!coded_) {
      std::memcpy(out.data() + sign_bytes, exponents.data(), v.size());
      return Status::Ok();
    }
    EQ_ASSIGN_OR_RETURN(const size_t size,
                        EncodeRans(exponents, kExponentBits, out.subspan(sign_bytes)));
    tiles->Wrote(tile, sign_bytes + size);
    return Status::Ok();
  }

  const bool coded_;
};

Status DecodeTile(const Layout& layout, size_t tile, const TileReader& tiles,
                  std::span<uint8_t> scratch, const DecodeSink& sink) {
  EQ_ASSIGN_OR_RETURN(const std::span<const uint8_t> in, tiles.Tile(tile));
  const auto [begin, size] = layout.Tile(tile);
  const size_t sign_bytes = Layout::SignBytes(size);
  if (in.size() < sign_bytes) {
    return BadPayload("tile " + std::to_string(tile) + " ends within its signs");
  }
  const std::span<uint8_t> signs = scratch.subspan(kMaxTile, size);
  if (size % 8 != 0 && in[sign_bytes - 1] >> size % 8 != 0) {
    return BadPayload("the filling of the signs of tile " + std::to_string(tile) + " is not 0");
  }
  UnpackCodes(in.data(), size, 1, signs.data());
  const uint8_t* exponents = in.data() + sign_bytes;
  if (layout.coded) {
    EQ_RETURN_IF_ERROR(DecodeRans(in.subspan(sign_bytes), kExponentBits, scratch.first(size),
                                  sink.Soon(begin)));
    exponents = scratch.data();
  }
  const auto join = [&, n = size](float* out) {
    return JoinNatural(exponents, signs.data(), n, sink.how(), out);
  };
  if (sink.PutChecked(begin, join)) return Status::Ok();
  return BadPayload("an exponent of tile " + std::to_string(tile) + " is that of infinity");
}

Status DecodeNatural(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  const auto parameters = frame.parameters;
  if (frame.flags != 0 || parameters.size() != kParameterBytes ||
      (parameters[0] != kPlain && parameters[0] != kRans) || parameters[1] != 0 ||
      parameters[2] != 0 || parameters[3] != 0) {
    return BadParameters("those of natural are 0 or 2, 0, 0, 0");
  }
  const Layout layout(parameters[0] == kRans, frame.elements);
  TileReader tiles(layout.places, frame.payload);
  EQ_RETURN_IF_ERROR(tiles.Check(work));
  return TryParallelFor(work, layout.tiles(), [&](size_t tile, int thread) {
    return DecodeTile(layout, tile, tiles, work.Scratch(thread, 2 * kMaxTile), sink);
  });
}

Result<std::shared_ptr<const Codec>> MakeNatural(const Spec& spec) {
  return {std::make_shared<NaturalCodec>(!spec.modifiers.empty())};
}

}  // namespace

const CodecFamily& NaturalFamily() {
  static const CodecFamily family{
      CodecId::kNatural,
      {"natural",
       "natural",
       CodecClass::kUnbiased,
       "natural compression: a sign and a power of two, by the float's exponent",
       {},
       {"rans"}},
      {"natural", "natural|rans"},
      MakeNatural,
      DecodeNatural};
  return family;
}

}  // namespace elastiquant
