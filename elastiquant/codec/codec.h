// A codec turns a flat vector of floats into a frame; any frame decodes without its codec.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"

namespace elastiquant {

// What a codec promises of Q(v), the vector that its frame decodes to (algorithms in the
// field's terms; NMSE = E|Q(v)-v|^2 / |v|^2).
enum class CodecClass : uint8_t {
  kLossless,     // Q(v) = v
  kUnbiased,     // E Q(v) = v
  kContractive,  // E|Q(v)-v|^2 <= (1-delta)|v|^2 with delta > 0
  kBiased,       // none of these
};
std::string_view CodecClassName(CodecClass c);  // "lossless", "unbiased", ...

// How workers come to the mean of what they encode.
enum class Exchange : uint8_t {
  kTwoPhase,   // scatter-reduce and all-gather: the owner of a chunk encodes its mean again
  kAllGather,  // each worker's frame goes to all, who decode and add them in the same order
  // The same sums, bit for bit: of each frame the coordinates of a chunk go to its owner, who
  // adds them and sends the sum to all as it is.
  kSparseScatter,
  kSparse,   // of the two the one that has been seen to move fewer bytes
  kFactors,  // the factors of matrices are averaged, as Codec::Factors says
  // All take the largest of their scales and scatter-reduce the codes: the owner of a chunk
  // adds them as integers, and sends the sums to all as they are (Codec::shared_scale).
  kIntegerSum,
};
// "two-phase", "all-gather", "sparse-scatter", "sparse", "factors", "integer-sum"
std::string_view ExchangeName(Exchange e);

// What a codec remembers from one message of a stream to the next: a vector of the message's
// length for each of Codec::StateFields(), zeros before the first message. Plain floats a
// coordinate, so that they can be checkpointed, and cut anew when the buckets are.
using StateIn = std::span<const std::span<const float>>;
using StateOut = std::span<const std::span<float>>;

// A tensor of a message, as a matrix in row-major order: its first dimension by all others.
// Tensors of one dimension (biases, norms) have one row.
struct TensorShape {
  size_t rows = 1;
  size_t cols = 0;
  // Of a convolution: values of a kernel, which are all dimensions behind the second; `cols` is
  // a multiple of it. 1 for all else.
  size_t kernel = 1;
};

// How workers come to the mean of a message by its factors (Vogels et al., "PowerSGD", NeurIPS
// 2019), with a basis Q that all have in common and M_w a matrix of worker w: P, the mean of
// M_w Q, is made orthonormal; Q' is the mean of M_w^T P; all take P Q'^T for the mean.
struct FactorPlan {
  struct Tensor {
    TensorShape shape;
    size_t begin = 0;    // in the message
    size_t size = 0;     // values; fewer than rows * cols if the last row is cut short
    bool dense = false;  // averaged as it is, as fp32
  };
  std::vector<Tensor> tensors;
  size_t rank = 0;           // columns of Q
  std::string factor_codec;  // that factors travel under
  // Worker w adds what it remembers to its gradient, and remembers M_w - P Q'^T ("residual",
  // the first of the fields of its state; "basis" is the last).
  bool error_feedback = false;
};

struct CodecParameter {
  std::string name;           // "bits"
  std::string default_value;  // "4"
  std::string help;           // "2 to 8: bits of a code, its sign included"
};

// One registered scheme, as `elastiquant codecs` lists it.
struct CodecInfo {
  std::string name;  // "elastic"
  std::string spec;  // a spec string that works as it stands
  CodecClass codec_class;
  std::string summary;  // one line
  std::vector<CodecParameter> parameters;
  std::vector<std::string> modifiers;  // "rans", "elias"; ListCodecModifiers() go with any
};

// What can follow any codec's spec and its own modifiers, such as |ef.
struct CodecModifierInfo {
  std::string name;
  std::string summary;  // one line
  std::vector<CodecParameter> parameters;
};

class SharedScale;  // shared_scale.h

// Immutable after creation and safe to share among threads; the Workspace is not.
class Codec {
 public:
  virtual ~Codec() = default;

  // The canonical spec string: MakeCodec(spec()) gives an equal codec.
  virtual std::string spec() const = 0;
  virtual CodecClass codec_class() const = 0;

  // The least upper bound that is known on the NMSE of a message of n values, whatever they are
  // as long as their squares are normal numbers: omega of an unbiased codec, 1 - delta of a
  // contractive one. Absent if none is known; always there and below 1 if kContractive.
  virtual std::optional<double> NmseBound(size_t n) const = 0;

  // NmseBound(granule()) holds for each run of so many values of a message too, counted from
  // its beginning, and for the shorter one at its end. 0: only for the whole message.
  virtual size_t granule() const { return 0; }

  // The most bytes that a frame of n floats can have. n < 2^32.
  virtual size_t MaxFrameBytes(size_t n) const = 0;

  // Writes one frame and returns its size. frame.size() >= MaxFrameBytes(values.size()).
  // Fails with kNonFinite if a value is NaN or infinite (the message has the coordinate), with
  // kOutOfRange if a norm exceeds fp32. The same (values, key) give the same bytes always.
  virtual Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                                std::span<uint8_t> frame) const = 0;

  virtual Exchange exchange() const { return Exchange::kTwoPhase; }
  // Of messages of n values, if exchange() is kFactors. (As an all-gather such a codec works
  // too: its frames are those of one worker alone.)
  virtual Result<FactorPlan> Factors(size_t n) const;
  // What kIntegerSum needs; null for codecs whose codes cannot be added up. It lives as long as
  // the codec does.
  virtual const SharedScale* shared_scale() const { return nullptr; }
  // Whether what is decoded is a velocity already, so that an optimiser must not add momentum.
  virtual bool has_momentum() const { return false; }

  // The same codec for messages that are these tensors, one behind the other, and for no
  // others; null if it treats all coordinates alike, as most do. The shapes are not part of
  // spec(). Not for kTwoPhase, which cuts messages up.
  virtual Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const;

  // The same codec for one epoch of training, counted from 0, if it sends more in the first
  // ones; null if it does what it always does, as most do. What is remembered carries over.
  virtual std::shared_ptr<const Codec> ForEpoch(int epoch) const;

  // The names of what it remembers; none for most codecs.
  virtual std::vector<std::string> StateFields() const { return {}; }
  // Encode, of a stream: reads what was remembered before, and writes all of `after`, other
  // memory, so that a message that is never sent can be forgotten.
  virtual Result<size_t> EncodeNext(std::span<const float> values, StreamKey key,
                                    Workspace& work, std::span<uint8_t> frame, StateIn before,
                                    StateOut after) const;
};

// Makes a codec from its spec string, such as "elastic:bits=4,levels=exp|rans". An unknown
// name, key, value or modifier is an error that lists the valid ones.
Result<std::shared_ptr<const Codec>> MakeCodec(std::string_view spec);
// Codec::WithShapes, or `codec` itself if it does not care.
Result<std::shared_ptr<const Codec>> CodecForShapes(std::shared_ptr<const Codec> codec,
                                                    std::span<const TensorShape> shapes);

// Codec::ForEpoch, or `codec` itself if all epochs are alike.
std::shared_ptr<const Codec> CodecForEpoch(const std::shared_ptr<const Codec>& codec,
                                           int epoch);

// All registered codecs, in the order to show them.
const std::vector<CodecInfo>& ListCodecs();
const std::vector<CodecModifierInfo>& ListCodecModifiers();

// What a frame says of itself: its checksum and header are right, its claims not yet believed.
struct FrameSummary {
  std::string codec;  // the name of the codec that made it
  size_t elements;
  size_t bytes;
  StreamKey key;
  // The mean variance of a coordinate's error, of frames that tell it exactly.
  std::optional<double> variance;
};
Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame);

// values = Q, or an error (untrusted.h). values.size() must be the frame's element count. On an
// error `values` is unspecified, but nothing outside it was written.
Status DecodeFrame(std::span<const uint8_t> frame, Workspace& work, std::span<float> values);

// values += weight * Q, in one pass; the errors are those of DecodeFrame.
Status DecodeAddFrame(std::span<const uint8_t> frame, float weight, Workspace& work,
                      std::span<float> values);

}  // namespace elastiquant
