// PowerSGD (Vogels et al., NeurIPS 2019): one power iteration a message, from the basis that
// the last one came to.
#include <algorithm>
#include <cmath>
#include <string>

#include "elastiquant/codec/low_rank/low_rank_codec.h"
#include "elastiquant/codec/low_rank/matrix_factors.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/remembering.h"

namespace elastiquant {
namespace {

// What is remembered of one tensor: Q, column after column, in the first of its values' places.
struct TensorMemory {
  std::span<const float> before;  // empty: nothing is
  std::span<float> after;         // empty: nothing need be
};

// Memory for the largest matrix of a message.
struct Scratch {
  std::span<double> p, q;
  std::span<float> p_rounded, q_rounded, basis;
};

class PowerSgdCodec : public LowRankCodec, public Remembering {
 public:
  using LowRankCodec::LowRankCodec;

  std::string spec() const override {
    return "powersgd:rank=" + std::to_string(rank()) +
           (format() == FactorFormat::kFp32 ? ",factors=fp32" : ",factors=bf16");
  }
  // With a drawn basis (1 - rank / cols) |v|^2 is expected; but a remembered one can be at
  // right angles to all that the matrix has.
  CodecClass codec_class() const override { return CodecClass::kBiased; }
  // What is sent is P P^T M, so that |M - P P^T M| <= |M|: also of a rounded P, since P P^T
  // has no eigenvalue above 2.
  std::optional<double> NmseBound(size_t) const override { return 1; }

  Exchange exchange() const override { return Exchange::kFactors; }
  Result<FactorPlan> Factors(size_t n) const override {
    PlacedTensor single;
    EQ_ASSIGN_OR_RETURN(const auto tensors, TensorsOf(n, &single));
    FactorPlan plan;
    for (const PlacedTensor& tensor : tensors) {
      plan.tensors.push_back({tensor.shape, tensor.begin, tensor.size, !Compresses(tensor)});
    }
    plan.rank = rank();
    plan.factor_codec = format() == FactorFormat::kFp32 ? "fp32" : "bf16";
    return plan;
  }
  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    return Run(values, key, work, frame, {});
  }

  const Remembering* remembering() const override { return this; }
  std::vector<std::string> Fields() const override { return {"basis"}; }
  Result<size_t> EncodeMessage(std::span<const float> values, StreamKey key, Workspace& work,
                               std::span<uint8_t> frame, StateIn before,
                               StateOut after) const override {
    return Run(values, key, work, frame, {before[0], after[0]});
  }

 protected:
  size_t MaxBytes(const PlacedTensor& tensor) const override {
    return Compresses(tensor)
               ? rank() * (tensor.shape.rows + tensor.shape.cols) * FactorBytes(format())
               : 4 * tensor.size;
  }
  std::shared_ptr<const Codec> Reshaped(
      std::shared_ptr<const MessageShape> shape) const override {
    return std::make_shared<PowerSgdCodec>(rank(), format(), std::move(shape));
  }

 private:
  Result<size_t> Run(std::span<const float> values, StreamKey key, Workspace& work,
                     std::span<uint8_t> frame, const TensorMemory& memory) const {
    PlacedTensor single;
    EQ_ASSIGN_OR_RETURN(const auto tensors, TensorsOf(values.size(), &single));
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    const Scratch scratch = MakeScratch(tensors, work);
    LowRankWriter writer(format(), tensors.size(), frame);
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto [shape, begin, size] = tensors[t];
      TensorMemory own;
      if (!memory.before.empty()) own.before = memory.before.subspan(begin, size);
      if (!memory.after.empty()) own.after = memory.after.subspan(begin, size);
      std::ranges::fill(own.after, 0.0f);
      const std::span<const float> part = values.subspan(begin, size);
      if (!Compresses(tensors[t])) {
        EQ_RETURN_IF_ERROR(writer.AddDense(tensors[t], part));
        continue;
      }
      EQ_RETURN_IF_ERROR(Compress(tensors[t], part, StreamKey{Mix64(key.value + t)}, work,
                                  scratch, own, &writer));
    }
    return writer.Seal(values.size(), key);
  }

  Status Compress(const PlacedTensor& tensor, std::span<const float> values, StreamKey key,
                  Workspace& work, const Scratch& scratch, const TensorMemory& memory,
                  LowRankWriter* writer) const {
    const size_t r = rank(), rows = tensor.shape.rows, cols = tensor.shape.cols;
    const MatrixView m{values, tensor.shape};
    const std::span<float> basis = scratch.basis.first(r * cols);
    PrepareBasis(memory.before, r, key, basis);

    const std::span<double> p = scratch.p.first(r * rows);
    MultiplyRows(m, {basis.data(), cols, r}, work, p);
    if (std::ranges::any_of(p, [](double v) { return !std::isfinite(v); })) {
      return NonFiniteIn(values, tensor.begin);
    }
    Orthonormalize(p, r);
    const std::span<float> p_rounded = scratch.p_rounded.first(r * rows);
    EQ_RETURN_IF_ERROR(RoundFactors(p, r, p_rounded));
    writer->BeginFactors(tensor, r);
    writer->AddFactor(p_rounded);

    const std::span<double> q = scratch.q.first(r * cols);
    MultiplyColumns(m, {p_rounded.data(), rows, r}, work, q);
    const std::span<float> q_rounded = scratch.q_rounded.first(r * cols);
    EQ_RETURN_IF_ERROR(RoundFactors(q, r, q_rounded));
    writer->AddFactor(q_rounded);
    if (!memory.after.empty()) std::ranges::copy(q_rounded, memory.after.begin());
    return Status::Ok();
  }

  Scratch MakeScratch(std::span<const PlacedTensor> tensors, Workspace& work) const {
    size_t rows = 0, cols = 0;
    for (const PlacedTensor& tensor : tensors) {
      if (!Compresses(tensor)) continue;
      rows = std::max(rows, rank() * tensor.shape.rows);
      cols = std::max(cols, rank() * tensor.shape.cols);
    }
    const size_t doubles = rows + cols, floats = rows + 2 * cols;
    const auto bytes = work.SharedScratch(Workspace::kCodecSlot,
                                          doubles * sizeof(double) + floats * sizeof(float));
    const auto d = reinterpret_cast<double*>(bytes.data());
    const auto f = reinterpret_cast<float*>(d + doubles);
    return {{d, rows}, {d + rows, cols}, {f, rows}, {f + rows, cols}, {f + rows + cols, cols}};
  }
};

Result<std::shared_ptr<const Codec>> MakePowerSgd(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const size_t rank, ParseRank(spec.codec, "powersgd", "2"));
  const std::string_view factors = SpecValue(spec.codec, "factors", "fp32");
  if (factors != "fp32" && factors != "bf16") {
    return InvalidArgument("codec 'powersgd': factors=" + std::string(factors) +
                           " is not known; valid: fp32, bf16");
  }
  const auto format = factors == "fp32" ? FactorFormat::kFp32 : FactorFormat::kBf16;
  return {std::make_shared<PowerSgdCodec>(rank, format, nullptr)};
}

}  // namespace

const CodecFamily& PowerSgdFamily() {
  static const CodecFamily family{
      CodecId::kLowRank,
      {"powersgd",
       "powersgd:rank=2",
       CodecClass::kBiased,
       "matrices as products of two thin factors, from one power iteration a message",
       {{"rank", "2", "1 to 1024: columns of a factor; what would not be shorter goes as fp32"},
        {"factors", "fp32", "fp32 or bf16: how a factor's numbers travel"}},
       {}},
      {"powersgd", "powersgd:rank=1", "powersgd:rank=4,factors=bf16", "powersgd:rank=100"},
      MakePowerSgd,
      DecodeLowRank};
  return family;
}

}  // namespace elastiquant
