// A codec turns a flat vector of floats into a frame. Decoding a frame does not need the codec
// that made it.
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

// What a codec promises of Q(v), the vector that its frame decodes to. The terms are those of
// the field; NMSE is E|Q(v)-v|^2 / |v|^2.
enum class CodecClass : uint8_t {
  kLossless,     // Q(v) = v
  kUnbiased,     // E Q(v) = v; of eden nearly so (rotation/eden.h)
  kContractive,  // E|Q(v)-v|^2 <= (1-delta)|v|^2 with delta > 0
  kBiased,       // promises none of these
};
// Returns "lossless", "unbiased", "contractive" or "biased".
std::string_view CodecClassName(CodecClass c);

// How workers come to the mean of what they encode.
enum class Exchange : uint8_t {
  // They scatter-reduce and all-gather: the owner of a chunk encodes its mean again.
  kTwoPhase,
  // Each worker's frame goes to all workers, who decode and add the frames in the same order.
  kAllGather,
  // This gives the same sums as kAllGather, bit for bit. Of each frame the coordinates of a
  // chunk go to the chunk's owner, who adds them and sends the sum to all as it is.
  kSparseScatter,
  // They use whichever of the two above has been seen to move fewer bytes.
  kSparse,
  // They average the factors of matrices, as Codec::Factors says.
  kFactors,
  // All take the largest of their scales and scatter-reduce the codes: the owner of a chunk
  // adds them as integers, and sends the sums to all as they are (see Codec::shared_scale).
  kIntegerSum,
};
// Returns "two-phase", "all-gather", "sparse-scatter", "sparse", "factors" or "integer-sum".
std::string_view ExchangeName(Exchange e);

// What a codec remembers from one message of a stream to the next: for each of
// Codec::StateFields() a vector of the message's length, which is zero before the first
// message. Each coordinate has its own plain float, so that the vectors can be checkpointed,
// and cut in another way when the buckets are.
using StateIn = std::span<const std::span<const float>>;
using StateOut = std::span<const std::span<float>>;

// A tensor of a message seen as a matrix in row-major order: the rows are its first dimension,
// and the columns all others. Tensors of one dimension (biases, norms) have one row.
struct TensorShape {
  size_t rows = 1;
  size_t cols = 0;
  // The number of values in a kernel of a convolution, that is, the product of the dimensions
  // behind the second; `cols` is a multiple of it. It is 1 for everything else.
  size_t kernel = 1;
};

// How workers come to the mean of a message by its factors (Vogels et al., "PowerSGD", NeurIPS
// 2019), with a basis Q that all have in common and M_w a matrix of worker w: P, the mean of
// M_w Q, is made orthonormal; Q' is the mean of M_w^T P; all take P Q'^T for the mean.
struct FactorPlan {
  struct Tensor {
    TensorShape shape;
    size_t begin = 0;    // where it begins in the message
    size_t size = 0;     // its values: fewer than rows * cols if the last row is cut short
    bool dense = false;  // whether it is averaged as it is, in fp32
  };
  std::vector<Tensor> tensors;
  size_t rank = 0;           // the number of columns of Q
  std::string factor_codec;  // the spec of the codec that factors travel under
  // If set, worker w adds what it remembers to its gradient, and then remembers M_w - P Q'^T.
  // This is "residual", the first field of its state; "basis" is the last one.
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
  // The modifiers of its own, such as "rans". Those of ListCodecModifiers() go with any codec.
  std::vector<std::string> modifiers;
};

// A modifier that can follow the spec of any codec and its own modifiers, such as |ef.
struct CodecModifierInfo {
  std::string name;
  std::string summary;  // one line
  std::vector<CodecParameter> parameters;
};

class SharedScale;  // shared_scale.h
class Remembering;  // remembering.h

// A codec is immutable after its creation and may be shared by threads. A Workspace may not.
//
// All codecs have a spec, bounds and frames. What only some of them can do is a role: a
// function below whose default says that the codec does not have it.
class Codec {
 public:
  virtual ~Codec() = default;

  // Returns the canonical spec string: MakeCodec(spec()) makes an equal codec.
  virtual std::string spec() const = 0;

  // These functions say what it promises.

  virtual CodecClass codec_class() const = 0;
  // Returns the least upper bound that is known on the NMSE of a message of n values, whatever
  // they are as long as their squares are normal numbers. It is the omega of an unbiased codec,
  // and the 1 - delta of a contractive one. It is absent if no bound is known; a contractive
  // codec always has one, which is below 1.
  virtual std::optional<double> NmseBound(size_t n) const = 0;
  // NmseBound(granule()) also holds for each run of granule() values of a message, counted from
  // its beginning, and for the shorter run at its end. If granule() is 0, the bound holds only
  // for the message as a whole.
  virtual size_t granule() const { return 0; }

  // These make frames.

  // Returns the most bytes that a frame of n floats can have. n < 2^32.
  virtual size_t MaxFrameBytes(size_t n) const = 0;
  // Writes one frame and returns its size. frame.size() >= MaxFrameBytes(values.size()). Fails
  // with kNonFinite if a value is NaN or infinite (the message names the coordinate), and with
  // kOutOfRange if a norm exceeds fp32. The same values and key always give the same bytes.
  virtual Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                                std::span<uint8_t> frame) const = 0;

  // These say how workers come to the mean of what they encode.

  virtual Exchange exchange() const { return Exchange::kTwoPhase; }
  // Returns how messages of n values are averaged by their factors, if exchange() is kFactors.
  // (Such a codec works as an all-gather too: its frames are then those of one worker alone.)
  virtual Result<FactorPlan> Factors(size_t n) const;
  // Returns what kIntegerSum needs, or null if the codec's codes cannot be added up. It lives
  // as long as the codec does.
  virtual const SharedScale* shared_scale() const { return nullptr; }

  // These return the same codec for other circumstances.

  // Returns the same codec for messages that consist of these tensors, one behind the other,
  // and for no others; or null if it treats all coordinates alike, as most codecs do. The
  // shapes are not part of spec(). A codec with shapes cannot be kTwoPhase, which cuts messages
  // up.
  virtual Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const;
  // Returns the same codec as it is in one epoch of training, counted from 0, if it sends more
  // in the first epochs; or null if the epoch makes no difference, which is so for most codecs.
  // What is remembered carries over.
  virtual std::shared_ptr<const Codec> ForEpoch(int epoch) const;

  // These are for streams of messages.

  // Returns what it does as a codec that remembers something from one message of a stream to
  // the next; or null if it remembers nothing, which is so for most codecs. It lives as long as
  // the codec does.
  virtual const Remembering* remembering() const { return nullptr; }
  // Returns the names of what it remembers, which for most codecs is nothing.
  std::vector<std::string> StateFields() const;
  // Encodes a message of a stream as remembering() says. Of a codec that remembers nothing this
  // is Encode, and there are no fields.
  Result<size_t> EncodeNext(std::span<const float> values, StreamKey key, Workspace& work,
                            std::span<uint8_t> frame, StateIn before, StateOut after) const;
};

// Makes a codec from its spec string, such as "elastic:bits=4,levels=exp|rans". An unknown
// name, key, value or modifier is an error that lists the valid ones.
Result<std::shared_ptr<const Codec>> MakeCodec(std::string_view spec);
// Returns Codec::WithShapes, or `codec` itself if shapes make no difference to it.
Result<std::shared_ptr<const Codec>> CodecForShapes(std::shared_ptr<const Codec> codec,
                                                    std::span<const TensorShape> shapes);

// Returns Codec::ForEpoch, or `codec` itself if all epochs are alike to it.
std::shared_ptr<const Codec> CodecForEpoch(const std::shared_ptr<const Codec>& codec,
                                           int epoch);

// Return all that are registered, in the order in which they are to be shown.
const std::vector<CodecInfo>& ListCodecs();
const std::vector<CodecModifierInfo>& ListCodecModifiers();

// What a frame says of itself. Its checksum and header have been found right, but what it
// claims about its contents has not been checked yet.
struct FrameSummary {
  // The name of the codec that decodes it: the first one in the registry whose frames have this
  // format, which need not be the one that made it. `efsign` and `signsgd` share one, for
  // example.
  std::string codec;
  size_t elements;
  size_t bytes;
  StreamKey key;
  // The mean variance of a coordinate's error, if the frame tells it exactly.
  std::optional<double> variance;
};
Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame);

// Sets `values` to Q, or fails (see untrusted.h). values.size() must be the frame's element
// count. On an error the contents of `values` are unspecified, but nothing outside is written.
Status DecodeFrame(std::span<const uint8_t> frame, Workspace& work, std::span<float> values);

// Adds weight * Q to `values` in one pass. The errors are those of DecodeFrame.
Status DecodeAddFrame(std::span<const uint8_t> frame, float weight, Workspace& work,
                      std::span<float> values);

}  // namespace elastiquant
