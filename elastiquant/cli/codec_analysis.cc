#include "elastiquant/cli/codec_analysis.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <vector>

#include "elastiquant/base/median.h"
#include "elastiquant/base/random.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/spec.h"

namespace elastiquant::cli {
namespace {

// What the entropy is estimated from.
constexpr size_t kEntropyElements = size_t{1} << 20;
constexpr size_t kEntropySamples = size_t{1} << 22;
constexpr size_t kEntropyDraws = 16;
// Sums of as many errors as share a place, with random signs, keep their inner products about
// as they were, and an expectation of 0.
constexpr size_t kFolds = size_t{1} << 15;
constexpr size_t kLongestBucket = 32768;  // entropy coders adapt to as many coordinates

struct Moments {
  double mean = 0;
  double standard_error = 0;
};
Moments MomentsOf(std::span<const double> samples) {
  const double count = static_cast<double>(samples.size());
  double sum = 0, squares = 0;
  for (const double x : samples) sum += x;
  const double mean = sum / count;
  for (const double x : samples) squares += (x - mean) * (x - mean);
  return {mean, std::sqrt(squares / (count - 1) / count)};
}

// Wallace, Annals of Mathematical Statistics 30 (1959): the normal number that is exceeded as
// often as t with that many degrees of freedom; good to 0.02 for what matters here.
double NormalOfStudent(double t, double freedom) {
  return (8 * freedom + 1) / (8 * freedom + 3) *
         std::sqrt(freedom * std::log1p(t * t / freedom));
}

// The bucket that the codec's canonical spec names, within kLongestBucket.
size_t BucketOf(const Codec& codec) {
  const auto spec = ParseSpec(codec.spec());
  const std::string_view text = spec.ok() ? SpecValue(spec->codec, "bucket", "0") : "0";
  size_t bucket = 0;
  std::from_chars(text.data(), text.data() + text.size(), bucket);
  return bucket == 0 ? kLongestBucket : std::min(bucket, kLongestBucket);
}

// Sorts `values`. Absent if they are no symbols.
std::optional<double> EntropyOf(std::span<float> values, size_t bucket) {
  std::ranges::sort(values);
  double sum = 0;
  size_t symbols = 0;
  for (size_t begin = 0, end = 0; begin < values.size(); begin = end, ++symbols) {
    while (end < values.size() && values[end] == values[begin]) ++end;
    const double count = static_cast<double>(end - begin);
    sum += count * std::log2(count);
  }
  if (symbols > 1 && symbols > bucket / 2) return std::nullopt;
  const double total = static_cast<double>(values.size());
  return std::log2(total) - sum / total;
}

// The decoded values of a few draws, one draw after the other.
class EntropyEstimate {
 public:
  EntropyEstimate(size_t n, size_t bucket, int draws)
      : elements_(std::min(n, kEntropyElements)), bucket_(std::min(bucket, elements_)) {
    draws_ = std::clamp(kEntropySamples / elements_, size_t{1},
                        std::min(kEntropyDraws, static_cast<size_t>(draws)));
  }
  void Add(std::span<const float> decoded) {
    if (decoded_.size() == draws_ * elements_) return;
    decoded_.insert(decoded_.end(), decoded.begin(),
                    decoded.begin() + static_cast<std::ptrdiff_t>(elements_));
  }
  std::optional<double> Value() const {
    double sum = 0;
    std::vector<float> values;
    for (size_t begin = 0; begin < elements_; begin += bucket_) {
      const size_t count = std::min(bucket_, elements_ - begin);
      values.clear();
      for (size_t draw = 0; draw < draws_; ++draw) {
        const auto first = decoded_.begin() + static_cast<std::ptrdiff_t>(draw * elements_);
        values.insert(values.end(), first + static_cast<std::ptrdiff_t>(begin),
                      first + static_cast<std::ptrdiff_t>(begin + count));
      }
      const std::optional<double> entropy = EntropyOf(values, count);
      if (!entropy) return std::nullopt;
      sum += *entropy * static_cast<double>(count);
    }
    return sum / static_cast<double>(elements_);
  }

 private:
  size_t elements_;
  size_t bucket_;
  size_t draws_;
  std::vector<float> decoded_;
};

// Draw after draw, what the errors add up to.
class ErrorStatistics {
 public:
  explicit ErrorStatistics(std::span<const float> values)
      : values_(values), sum_(values.size()), folds_(std::min(values.size(), kFolds)) {
    for (const float v : values) norm_ += static_cast<double>(v) * v;
  }

  void Add(std::span<const float> decoded) {
    double squares = 0, along = 0, product = 0, size = 0;
    std::vector<double>& fold = folded_.emplace_back(folds_);
    for (size_t i = 0; i < values_.size(); ++i) {
      const double v = values_[i], q = decoded[i], e = q - v;
      squares += e * e;
      along += e * v;
      product += q * v;
      size += q * q;
      sum_[i] += e;
      const bool turned = RandomBits(signs_, static_cast<uint32_t>(i)) >> 31 != 0;
      fold[i % folds_] += turned ? -e : e;
    }
    squares_.push_back(squares);
    along_.push_back(norm_ > 0 ? along / norm_ : 0);
    const double norms = std::sqrt(size) * std::sqrt(norm_);
    // Two zero vectors are alike.
    cosine_ += norms > 0 ? product / norms : (size == norm_ ? 1 : 0);
  }

  void WriteTo(Analysis* analysis) const {
    const double draws = static_cast<double>(squares_.size());
    const Moments error = MomentsOf(squares_);
    const double unit = norm_ > 0 ? norm_ : 1;
    analysis->nmse = error.mean / unit;
    analysis->nmse_standard_error = error.standard_error / unit;
    analysis->cosine = cosine_ / draws;
    analysis->bias_z = std::max(AlongZ(), AnywhereZ());
    analysis->bias_share = error.mean > 0 ? PairSum() / (draws * (draws - 1)) / error.mean : 0;
  }

 private:
  // The sum over s != t of <e_s, e_t>.
  double PairSum() const {
    double of_sums = 0, of_squares = 0;
    for (const double s : sum_) of_sums += s * s;
    for (const double s : squares_) of_squares += s;
    return of_sums - of_squares;
  }
  double AlongZ() const {
    const Moments along = MomentsOf(along_);
    return NormalOfStudent(along.mean / std::max(along.standard_error, 0x1p-23), Freedom());
  }
  // Products of different draws are uncorrelated, so that the sum of their squares estimates
  // the variance of their sum, even if a few of them make up most of it.
  double AnywhereZ() const {
    double sum = 0, squares = 0;
    for (size_t s = 0; s < folded_.size(); ++s) {
      for (size_t t = 0; t < s; ++t) {
        const double product =
            std::inner_product(folded_[s].begin(), folded_[s].end(), folded_[t].begin(), 0.0);
        sum += product;
        squares += product * product;
      }
    }
    return squares > 0 ? sum / std::sqrt(squares) : 0;
  }
  double Freedom() const { return static_cast<double>(squares_.size()) - 1; }

  std::span<const float> values_;
  double norm_ = 0;
  std::vector<double> sum_;
  size_t folds_;
  LaneKeys signs_ = MakeLaneKeys({0});
  std::vector<std::vector<double>> folded_;  // a draw's errors, with random signs
  std::vector<double> squares_, along_;      // a value a draw
  double cosine_ = 0;
};

}  // namespace

Result<Analysis> Analyse(const Codec& codec, std::span<const float> values,
                         const AnalysisOptions& options, Workspace& work) {
  const size_t n = values.size();
  std::vector<uint8_t> frame(codec.MaxFrameBytes(n));
  std::vector<float> decoded(n);
  ErrorStatistics errors(values);
  EntropyEstimate entropy(n, BucketOf(codec), options.draws);
  std::vector<double> encode_seconds, decode_seconds;
  double bytes = 0;
  for (int draw = 0; draw < options.draws; ++draw) {
    const StreamKey key = DeriveKey(options.seed, static_cast<uint64_t>(draw), 0, 0);
    const Stopwatch encoding;
    EQ_ASSIGN_OR_RETURN(const size_t size, codec.Encode(values, key, work, frame));
    encode_seconds.push_back(encoding.Seconds());
    const Stopwatch decoding;
    EQ_RETURN_IF_ERROR(DecodeFrame(std::span(frame).first(size), work, decoded));
    decode_seconds.push_back(decoding.Seconds());
    bytes += static_cast<double>(size);
    errors.Add(decoded);
    entropy.Add(decoded);
  }
  const double count = static_cast<double>(n);
  Analysis analysis;
  analysis.bits_per_coordinate = 8 * bytes / options.draws / count;
  if (codec.codec_class() != CodecClass::kLossless) analysis.entropy = entropy.Value();
  errors.WriteTo(&analysis);
  analysis.encode_gigabytes_per_second = count * sizeof(float) / Median(encode_seconds) / 1e9;
  analysis.decode_gigabytes_per_second = count * sizeof(float) / Median(decode_seconds) / 1e9;
  return analysis;
}

}  // namespace elastiquant::cli
