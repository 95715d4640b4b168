#include "elastiquant/codec/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/number.h"
#include "elastiquant/codec/codec_decorator.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// Coordinates that one thread takes at a time.
constexpr size_t kUpdatedAtOnce = size_t{1} << 16;

// A codec with memory. Its frames, and the first message of a stream, are those of the codec
// inside, which may remember things too: its fields follow the wrapper's own.
class MemoryCodec : public CodecDecorator, public Remembering {
 public:
  using CodecDecorator::CodecDecorator;

  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override {
    EQ_ASSIGN_OR_RETURN(auto shaped, inner().WithShapes(shapes));
    return shaped ? Around(std::move(shaped)) : std::move(shaped);
  }
  const Remembering* remembering() const override { return this; }
  std::vector<std::string> Fields() const override {
    std::vector<std::string> fields = OwnFields();
    for (std::string& field : inner().StateFields()) fields.push_back(std::move(field));
    return fields;
  }

 protected:
  virtual std::vector<std::string> OwnFields() const = 0;
  // Returns the same memory around another codec.
  virtual std::shared_ptr<const Codec> Around(std::shared_ptr<const Codec> inner) const = 0;

  // Encodes `sum`, of the values given and what is remembered, and takes from it what its frame
  // decodes to. The state is that of the codec inside.
  Result<size_t> Send(std::span<const float> values, std::span<float> sum, StreamKey key,
                      Workspace& work, std::span<uint8_t> frame, StateIn before,
                      StateOut after) const {
    const Result<size_t> size = inner().EncodeNext(sum, key, work, frame, before, after);
    if (!size.ok()) return NamingMemory(size.status(), values, sum);
    EQ_RETURN_IF_ERROR(DecodeAddFrame(frame.first(*size), -1, work, sum));
    return *size;
  }

  // Who reads that a value is infinite must not look for it among finite ones.
  Status NamingMemory(Status status, std::span<const float> values,
                      std::span<const float> sum) const {
    if (status.code() != StatusCode::kNonFinite || !AllFinite(values)) return status;
    const auto bad = std::ranges::find_if(sum, [](float v) { return !std::isfinite(v); });
    if (bad == sum.end()) return status;
    return NonFinite("what codec '" + spec() + "' remembers exceeds fp32 at coordinate " +
                     std::to_string(bad - sum.begin()) +
                     " together with the value given, which is finite: give smaller values, or "
                     "begin a new stream, which remembers nothing");
  }

  // Calls fn(i) for each i in [0, n).
  template <typename Fn>
  static void ForEach(size_t n, Workspace& work, const Fn& fn) {
    const auto block = [&](size_t item, int) {
      const size_t end = std::min(n, (item + 1) * kUpdatedAtOnce);
      for (size_t i = item * kUpdatedAtOnce; i < end; ++i) fn(i);
    };
    work.ParallelFor((n + kUpdatedAtOnce - 1) / kUpdatedAtOnce, std::cref(block));
  }
};

// Whether it is published with the learning rate in its memory.
bool IsEfSign(const Codec& codec) {
  const std::string spec = codec.spec();
  return spec.substr(0, spec.find_first_of(":|")) == "efsign";
}

struct ErrorFeedbackOptions {
  bool learning_rate = false;  // in the memory
  float decay = 1;             // of what is remembered, from one message to the next
};

class ErrorFeedbackCodec : public MemoryCodec {
 public:
  ErrorFeedbackCodec(std::shared_ptr<const Codec> inner, const ErrorFeedbackOptions& options)
      : MemoryCodec(std::move(inner)), options_(options) {}

  // Without what everybody takes for granted.
  std::string spec() const override {
    std::string keys;
    if (options_.learning_rate || IsEfSign(inner())) {
      keys += options_.learning_rate ? ":lr=inside" : ":lr=outside";
    }
    if (options_.decay != 1) {
      keys += (keys.empty() ? ":" : ",") + ("decay=" + NumberText(options_.decay));
    }
    return inner().spec() + "|ef" + keys;
  }
  bool has_learning_rate() const override { return options_.learning_rate; }
  // An owner's memory of what its mean lost needs a mean that is encoded.
  Exchange exchange() const override {
    const Exchange exchange = inner().exchange();
    return exchange == Exchange::kIntegerSum ? Exchange::kTwoPhase : exchange;
  }
  Result<FactorPlan> Factors(size_t n) const override {
    EQ_ASSIGN_OR_RETURN(FactorPlan plan, inner().Factors(n));
    plan.error_feedback = true;
    return plan;
  }

  Result<size_t> EncodeMessage(std::span<const float> values, StreamKey key, Workspace& work,
                               std::span<uint8_t> frame, StateIn before,
                               StateOut after) const override {
    const std::span<const float> old = before[0];
    const std::span<float> sum = after[0];
    const float decay = options_.decay;
    ForEach(values.size(), work, [&](size_t i) {
      const float kept = decay * old[i];
      sum[i] = values[i] + kept;
    });
    return Send(values, sum, key, work, frame, before.subspan(1), after.subspan(1));
  }
  void SendExactly(std::span<float> values, StateOut memory) const override {
    const std::span<float> residual = memory[0];
    for (size_t i = 0; i < values.size(); ++i) {
      const float kept = options_.decay * residual[i];
      values[i] += kept;
      residual[i] = 0;
    }
  }

 protected:
  std::vector<std::string> OwnFields() const override { return {"residual"}; }
  std::shared_ptr<const Codec> Around(std::shared_ptr<const Codec> inner) const override {
    return std::make_shared<ErrorFeedbackCodec>(std::move(inner), options_);
  }

 private:
  const ErrorFeedbackOptions options_;
};

struct DgcOptions {
  float momentum = 0.9f;
  bool nesterov = false;
  float clip = 0;  // 0: never
};

class DgcMemoryCodec : public MemoryCodec {
 public:
  DgcMemoryCodec(std::shared_ptr<const Codec> inner, const DgcOptions& options)
      : MemoryCodec(std::move(inner)), options_(options) {}

  std::string spec() const override {
    return inner().spec() + "|dgc:momentum=" + NumberText(options_.momentum) +
           ",nesterov=" + (options_.nesterov ? "yes" : "no") +
           ",clip=" + NumberText(options_.clip);
  }
  // A mean that is compressed again on its way back would need a memory of another kind.
  Exchange exchange() const override {
    const bool sparse = inner().exchange() == Exchange::kSparse;
    return sparse ? Exchange::kSparse : Exchange::kAllGather;
  }
  std::optional<OwnMomentum> momentum() const override {
    if (options_.momentum == 0) return std::nullopt;
    return OwnMomentum{options_.momentum, options_.nesterov};
  }

  Result<size_t> EncodeMessage(std::span<const float> values, StreamKey key, Workspace& work,
                               std::span<uint8_t> frame, StateIn before,
                               StateOut after) const override {
    const std::span<const float> old_velocity = before[0], old_residual = before[1];
    const std::span<float> velocity = after[0], residual = after[1];
    const float scale = ClipScale(values);
    const float m = options_.momentum;
    const auto waiting = [&](size_t i) {  // also what `residual` was before Send
      const float step = options_.nesterov ? m * velocity[i] + scale * values[i] : velocity[i];
      return old_residual[i] + step;
    };
    ForEach(values.size(), work, [&](size_t i) {
      velocity[i] = m * old_velocity[i] + scale * values[i];
      residual[i] = waiting(i);
    });
    EQ_ASSIGN_OR_RETURN(const size_t size, Send(values, residual, key, work, frame,
                                                before.subspan(2), after.subspan(2)));
    ForEach(values.size(), work, [&](size_t i) {
      if (residual[i] != waiting(i)) velocity[i] = 0;
    });
    return size;
  }
  void SendExactly(std::span<float> values, StateOut memory) const override {
    const std::span<float> velocity = memory[0], residual = memory[1];
    const float scale = ClipScale(values);
    const float m = options_.momentum;
    for (size_t i = 0; i < values.size(); ++i) {
      const float g = scale * values[i];
      velocity[i] = m * velocity[i] + g;
      values[i] = residual[i] + (options_.nesterov ? m * velocity[i] + g : velocity[i]);
      residual[i] = 0;
    }
  }

 protected:
  std::vector<std::string> OwnFields() const override { return {"velocity", "residual"}; }
  std::shared_ptr<const Codec> Around(std::shared_ptr<const Codec> inner) const override {
    return std::make_shared<DgcMemoryCodec>(std::move(inner), options_);
  }

 private:
  // 1 also if a value is not finite, which Encode will then report.
  float ClipScale(std::span<const float> values) const {
    if (options_.clip == 0) return 1;
    double squares = 0;
    for (const float v : values) squares += static_cast<double>(v) * v;
    const double norm = std::sqrt(squares);
    const bool clips = norm > options_.clip && std::isfinite(norm);
    return clips ? static_cast<float>(options_.clip / norm) : 1.0f;
  }

  const DgcOptions options_;
};

Status CheckLossy(const Codec& inner, std::string_view modifier) {
  if (inner.codec_class() == CodecClass::kLossless) {
    return InvalidArgument("codec '" + inner.spec() + "' loses nothing that |" +
                           std::string(modifier) + " could remember: leave the modifier out");
  }
  const std::vector<std::string> fields = inner.StateFields();
  if (Contains(fields, "residual")) {
    return InvalidArgument("codec '" + inner.spec() +
                           "' has a memory of what it loses already: give one of |ef and |dgc");
  }
  return Status::Ok();
}

Result<std::shared_ptr<const Codec>> WrapErrorFeedback(std::shared_ptr<const Codec> inner,
                                                       const SpecPart& part) {
  EQ_RETURN_IF_ERROR(CheckLossy(*inner, "ef"));
  const std::string_view lr = SpecValue(part, "lr", IsEfSign(*inner) ? "inside" : "outside");
  if (lr != "inside" && lr != "outside") {
    return BadValueOf("modifier 'ef'", "lr", lr, "inside (of the memory) or outside");
  }
  ErrorFeedbackOptions options{.learning_rate = lr == "inside"};
  const std::string_view decay = SpecValue(part, "decay", "1");
  if (!ParseNumber(decay, &options.decay) || !(options.decay > 0 && options.decay <= 1)) {
    return BadValueOf("modifier 'ef'", "decay", decay, "a number above 0, up to 1");
  }
  if (options.decay != 1 && inner->exchange() == Exchange::kFactors) {
    return InvalidArgument("codec '" + inner->spec() +
                           "' averages factors, whose memory does not decay: leave decay out");
  }
  return {std::make_shared<ErrorFeedbackCodec>(std::move(inner), options)};
}

Result<std::shared_ptr<const Codec>> WrapDgc(std::shared_ptr<const Codec> inner,
                                             const SpecPart& part) {
  EQ_RETURN_IF_ERROR(CheckLossy(*inner, "dgc"));
  DgcOptions options;
  const std::string_view momentum = SpecValue(part, "momentum", "0.9");
  if (!ParseNumber(momentum, &options.momentum) ||
      !(options.momentum >= 0 && options.momentum < 1)) {
    return BadValueOf("modifier 'dgc'", "momentum", momentum, "a number from 0 to below 1");
  }
  const std::string_view nesterov = SpecValue(part, "nesterov", "no");
  if (nesterov != "yes" && nesterov != "no") {
    return BadValueOf("modifier 'dgc'", "nesterov", nesterov, "yes or no");
  }
  options.nesterov = nesterov == "yes";
  const std::string_view clip = SpecValue(part, "clip", "0");
  if (!ParseNumber(clip, &options.clip) || !(options.clip >= 0) ||
      !std::isfinite(options.clip)) {
    return BadValueOf("modifier 'dgc'", "clip", clip,
                      "the largest norm a message may have, or 0 for any");
  }
  return {std::make_shared<DgcMemoryCodec>(std::move(inner), options)};
}

}  // namespace

const CodecModifier& ErrorFeedbackModifier() {
  static const CodecModifier modifier{
      "ef",
      "error feedback: what a message lost is added to the next",
      {{"lr", "outside", "inside or outside of the memory; as published, inside for efsign"},
       {"decay", "1",
        "above 0, up to 1: what is remembered counts so much in the next message"}},
      WrapErrorFeedback};
  return modifier;
}

const CodecModifier& DgcModifier() {
  static const CodecModifier modifier{
      "dgc",
      "Deep Gradient Compression: error feedback of the velocity, with factor masking",
      {{"momentum", "0.9", "of the velocity, 0 to below 1; the optimiser must have none"},
       {"nesterov", "no", "yes or no"},
       {"clip", "0", "largest norm of a worker's message, scaled down to it; 0: any"}},
      WrapDgc};
  return modifier;
}

}  // namespace elastiquant
