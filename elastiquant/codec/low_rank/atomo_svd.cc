// ATOMO's singular-value form (Wang et al., "ATOMO: Communication-efficient Learning via Atomic
// Sparsification", NeurIPS 2018): each singular triple of a matrix is sent with a probability
// of its own, and independently of the others.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "elastiquant/codec/low_rank/low_rank_codec.h"
#include "elastiquant/codec/low_rank/matrix_factors.h"
#include "elastiquant/codec/low_rank/symmetric_eigen.h"
#include "elastiquant/codec/low_rank/water_filling.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr size_t kGramColumns = 8;  // of a Gram matrix, that one thread takes at a time
// Eigenvalues are exact to about 2^-52 of the largest, singular values to the root of that.
constexpr double kLeastSingular = 0x1p-26;

// One piece of scratch memory after the other.
class Pieces {
 public:
  explicit Pieces(std::span<uint8_t> bytes) : next_(bytes.data()) {}
  template <typename T>
  std::span<T> Take(size_t n) {
    T* const begin = reinterpret_cast<T*>(next_);
    next_ += n * sizeof(T);
    return {begin, n};
  }

 private:
  uint8_t* next_;
};

// A matrix laid on its side if need be: a = sum of u_i w_i^T, with u_i the eigenvectors of
// a a^T and w_i = a^T u_i, however inexact the eigenvectors are, as long as they are
// orthonormal.
struct Decomposition {
  size_t shorter = 0, longer = 0;
  bool on_its_side = false;      // a is the transposed matrix
  std::span<float> a;            // shorter rows of `longer` values
  std::span<double> vectors;     // u_i, one after the other, in the order of `values`
  std::span<double> magnitudes;  // |w_i|, descending
  std::span<double> probabilities;
  std::span<uint64_t> thresholds;  // of 2^32: the probabilities as they are drawn with
  std::span<uint32_t> kept;        // room for the numbers of the triples that are sent
};

void LayDown(const PlacedTensor& tensor, std::span<const float> values, Decomposition* d) {
  const size_t rows = tensor.shape.rows, cols = tensor.shape.cols;
  if (!d->on_its_side) {
    std::ranges::copy(values, d->a.begin());
    std::ranges::fill(d->a.subspan(values.size()), 0.0f);
    return;
  }
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      const size_t at = i * cols + j;
      d->a[j * rows + i] = at < values.size() ? values[at] : 0.0f;
    }
  }
}

Status Decompose(Workspace& work, Decomposition* d) {
  const size_t k = d->shorter;
  const float* const a = d->a.data();
  const auto columns = [&](size_t item, int) {
    const size_t first = item * kGramColumns, count = std::min(kGramColumns, k - first);
    const float* const from = a + first * d->longer;
    DotRows(from, k - first, d->longer, {from, d->longer, count},
            d->vectors.data() + first * k + first, k);
  };
  work.ParallelFor((k + kGramColumns - 1) / kGramColumns, std::cref(columns));
  EQ_RETURN_IF_ERROR(SymmetricEigen(d->vectors, d->magnitudes));
  std::ranges::reverse(d->magnitudes);  // vector i is now column k - 1 - i
  const double largest = std::sqrt(std::max(0.0, d->magnitudes[0]));
  for (double& m : d->magnitudes) {
    m = std::max(std::sqrt(std::max(0.0, m)), kLeastSingular * largest);
  }
  return Status::Ok();
}

// Probabilities as multiples of 2^-32, rounded up, so that drawing and scaling agree exactly.
void ChooseProbabilities(size_t budget, const Decomposition& d) {
  WaterFill(d.magnitudes, static_cast<double>(budget), d.probabilities);
  for (size_t i = 0; i < d.shorter; ++i) {
    d.thresholds[i] = static_cast<uint64_t>(std::ceil(d.probabilities[i] * 0x1p32));
  }
}

// A convolution of o x i kernels as the matrix that the authors' code makes of it: two kernels
// a row. The values stay where they are. An odd number of kernels, which that code refuses, and
// kernels of one value are left as they are.
TensorShape PairsOfKernels(const TensorShape& shape) {
  if (shape.kernel <= 1 || shape.rows * shape.cols / shape.kernel % 2 != 0) return shape;
  const size_t cols = 2 * shape.kernel;
  return {shape.rows * shape.cols / cols, cols};
}

class AtomoSvdCodec : public LowRankCodec {
 public:
  AtomoSvdCodec(size_t rank, bool pairs, std::shared_ptr<const MessageShape> shape)
      : LowRankCodec(rank, FactorFormat::kFp32, std::move(shape)), pairs_(pairs) {}

  std::string spec() const override {
    return "atomo-svd:rank=" + std::to_string(rank()) + (pairs_ ? ",convolutions=pairs" : "");
  }
  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override {
    if (!pairs_) return LowRankCodec::WithShapes(shapes);
    std::vector<TensorShape> paired(shapes.size());
    std::ranges::transform(shapes, paired.begin(), PairsOfKernels);
    return LowRankCodec::WithShapes(paired);
  }
  CodecClass codec_class() const override { return CodecClass::kUnbiased; }
  // The best probabilities are no worse than equal ones, rank / k for each of k triples.
  std::optional<double> NmseBound(size_t n) const override {
    PlacedTensor single;
    const auto tensors = TensorsOf(n, &single);
    if (!tensors.ok()) return std::nullopt;
    double bound = 0;
    for (const PlacedTensor& tensor : *tensors) {
      if (!Compresses(tensor)) continue;
      const auto k = static_cast<double>(std::min(tensor.shape.rows, tensor.shape.cols));
      bound = std::max(bound, k / static_cast<double>(rank()) - 1);
    }
    return bound;
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    PlacedTensor single;
    EQ_ASSIGN_OR_RETURN(const auto tensors, TensorsOf(values.size(), &single));
    EQ_RETURN_IF_ERROR(
        CheckEncodeSizes(values.size(), MaxFrameBytes(values.size()), frame.size()));
    LowRankWriter writer(format(), tensors.size(), frame);
    uint32_t triples = 0;  // of the tensors before
    for (const PlacedTensor& tensor : tensors) {
      const std::span<const float> part = values.subspan(tensor.begin, tensor.size);
      if (!Compresses(tensor)) {
        EQ_RETURN_IF_ERROR(writer.AddDense(tensor, part));
        continue;
      }
      if (AbsMaxBits(part.data(), part.size()) >= kNonFiniteBits) {
        return NonFiniteIn(part, tensor.begin);
      }
      EQ_RETURN_IF_ERROR(Compress(tensor, part, MakeLaneKeys(key), triples, work, &writer));
      triples += static_cast<uint32_t>(std::min(tensor.shape.rows, tensor.shape.cols));
    }
    return writer.Seal(values.size(), key);
  }

 protected:
  // More triples than usual may be drawn; what they add up to is then sent value by value.
  size_t MaxBytes(const PlacedTensor& tensor) const override { return 4 * tensor.size; }
  // The time for the singular vectors grows with the square of it for each value.
  size_t MostColumns() const override { return 128; }
  std::shared_ptr<const Codec> Reshaped(
      std::shared_ptr<const MessageShape> shape) const override {
    return std::make_shared<AtomoSvdCodec>(rank(), pairs_, std::move(shape));
  }

 private:
  Status Compress(const PlacedTensor& tensor, std::span<const float> values, LaneKeys keys,
                  uint32_t first_triple, Workspace& work, LowRankWriter* writer) const {
    Decomposition d = MakeDecomposition(tensor, work);
    LayDown(tensor, values, &d);
    EQ_RETURN_IF_ERROR(Decompose(work, &d));
    ChooseProbabilities(rank(), d);
    size_t kept = 0;
    for (uint32_t i = 0; i < d.shorter; ++i) {
      if (RandomBits(keys, first_triple + i) < d.thresholds[i]) d.kept[kept++] = i;
    }
    d.kept = d.kept.first(kept);
    if (kept > 0) return Send(tensor, d, work, writer);
    writer->BeginFactors(tensor, 0);
    return Status::Ok();
  }

  // The sum of the kept u_i (w_i / p_i)^T.
  Status Send(const PlacedTensor& tensor, const Decomposition& d, Workspace& work,
              LowRankWriter* writer) const {
    const size_t count = d.kept.size();
    const bool as_factors = FactorsAreShorter(tensor, count);
    // Room for more than are ever drawn, so that not each message asks for a little more.
    const size_t most = std::max(count, std::min(d.shorter, 2 * rank() + 16));
    const size_t floats = most * (d.shorter + d.longer) + (as_factors ? 0 : tensor.size);
    Pieces pieces(work.SharedScratch(
        Workspace::kCodecSlot + 1, most * d.longer * sizeof(double) + floats * sizeof(float)));
    const auto exact = pieces.Take<double>(count * d.longer);
    const auto w = pieces.Take<float>(count * d.longer);
    const auto u = pieces.Take<float>(count * d.shorter);
    for (size_t c = 0; c < count; ++c) {
      const double* const from = d.vectors.data() + (d.shorter - 1 - d.kept[c]) * d.shorter;
      for (size_t i = 0; i < d.shorter; ++i) {
        u[c * d.shorter + i] = static_cast<float>(from[i]);
      }
    }
    MultiplyColumns({d.a, {d.shorter, d.longer}}, {u.data(), d.shorter, count}, work, exact);
    for (size_t c = 0; c < count; ++c) {
      const double scale = 0x1p32 / static_cast<double>(d.thresholds[d.kept[c]]);
      for (double& v : exact.subspan(c * d.longer, d.longer)) v *= scale;
    }
    EQ_RETURN_IF_ERROR(RoundFactors(exact, count, w));
    const std::span<float> p = d.on_its_side ? w : u, q = d.on_its_side ? u : w;
    if (as_factors) {
      writer->BeginFactors(tensor, count);
      writer->AddFactor(p);
      writer->AddFactor(q);
      return Status::Ok();
    }
    const auto sum = pieces.Take<float>(tensor.size);
    MultiplyFactors({p.data(), tensor.shape.rows, count}, {q.data(), tensor.shape.cols, count},
                    tensor.shape, work, sum);
    return writer->AddDense(tensor, sum);
  }

  Decomposition MakeDecomposition(const PlacedTensor& tensor, Workspace& work) const {
    const size_t rows = tensor.shape.rows, cols = tensor.shape.cols;
    Decomposition d;
    d.shorter = std::min(rows, cols);
    d.longer = std::max(rows, cols);
    d.on_its_side = rows > cols;
    const size_t k = d.shorter;
    Pieces pieces(work.SharedScratch(Workspace::kCodecSlot,
                                     8 * k * (k + 3) + sizeof(float) * k * (d.longer + 1)));
    d.vectors = pieces.Take<double>(k * k);
    d.magnitudes = pieces.Take<double>(k);
    d.probabilities = pieces.Take<double>(k);
    d.thresholds = pieces.Take<uint64_t>(k);
    d.a = pieces.Take<float>(k * d.longer);
    d.kept = pieces.Take<uint32_t>(k);
    return d;
  }

  const bool pairs_;
};

Result<std::shared_ptr<const Codec>> MakeAtomoSvd(const Spec& spec) {
  EQ_ASSIGN_OR_RETURN(const size_t rank, ParseRank(spec.codec, "atomo-svd", "3"));
  const std::string_view text = SpecValue(spec.codec, "convolutions", "rows");
  if (text != "rows" && text != "pairs") {
    return InvalidArgument("codec 'atomo-svd': convolutions=" + std::string(text) +
                           " is not valid; use rows or pairs");
  }
  return {std::make_shared<AtomoSvdCodec>(rank, text == "pairs", nullptr)};
}

}  // namespace

const CodecFamily& AtomoSvdFamily() {
  static const CodecFamily family{
      CodecId::kLowRank,
      {"atomo-svd",
       "atomo-svd:rank=3",
       CodecClass::kUnbiased,
       "singular triples of matrices, drawn with the probabilities of least variance",
       {{"rank", "3", "1 to 1024: how many triples of a matrix are sent on average"},
        {"convolutions", "rows",
         "what is a row of their matrix: rows: an output channel; pairs: two kernels, as "
         "published"}},
       {}},
      {"atomo-svd", "atomo-svd:rank=1", "atomo-svd:rank=12", "atomo-svd:convolutions=pairs"},
      MakeAtomoSvd,
      DecodeLowRank};
  return family;
}

}  // namespace elastiquant
