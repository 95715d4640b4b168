#include "elastiquant/layers/certificate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "elastiquant/base/json_number.h"
#include "elastiquant/codec/elastic/elastic.h"
#include "elastiquant/codec/untrusted.h"
#include "elastiquant/theory/codec_bounds.h"

namespace elastiquant {
namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// As workers exchange them and checkpoints keep them.
using Numbers = std::array<double, sizeof(CertificateSums) / sizeof(double)>;
static_assert(std::is_trivially_copyable_v<CertificateSums>);
static_assert(sizeof(Numbers) == sizeof(CertificateSums));

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return sum;
}

// Of coordinates [begin, end) of a message whose frame may have most_bits.
CertificateSums Measured(const MeasuredMessage& m, double most_bits, size_t begin, size_t end) {
  const auto size = static_cast<double>(m.input.size());
  const double share = static_cast<double>(end - begin) / size;
  CertificateSums sums{.messages = 1,
                       .coordinates = static_cast<double>(end - begin),
                       .squared_norm = SquaredNorm(m.input.subspan(begin, end - begin)),
                       .squared_error = SquaredNorm(m.error.subspan(begin, end - begin)),
                       .bits = 8.0 * share * static_cast<double>(m.frame.size()),
                       .bits_bound = share * most_bits};
  sums.error_error = sums.squared_error * sums.squared_error;
  sums.error_norm = sums.squared_error * sums.squared_norm;
  sums.norm_norm = sums.squared_norm * sums.squared_norm;
  return sums;
}

// The runs of a message of n coordinates that are quantised together.
TileGeometry RunsOf(const Codec& codec, size_t n) {
  const std::span<const TensorStart> tensors = ElasticTensors(codec);
  if (tensors.empty()) return TileGeometry(codec.granule(), false, n);
  return TileGeometry(ElasticFormatFor(codec, n)->bucket, false, n, tensors);
}

}  // namespace

std::string_view VerdictName(Verdict v) {
  switch (v) {
    case Verdict::kHolds:
      return "holds";
    case Verdict::kLoose:
      return "loose";
    case Verdict::kExceeded:
      return "exceeded";
    case Verdict::kUnbounded:
      return "unbounded";
  }
  return "";
}

CertificateSums& CertificateSums::operator+=(const CertificateSums& other) {
  auto mine = std::bit_cast<Numbers>(*this);
  const auto theirs = std::bit_cast<Numbers>(other);
  for (size_t i = 0; i < mine.size(); ++i) mine[i] += theirs[i];
  return *this = std::bit_cast<CertificateSums>(mine);
}

// Of the messages' errors about what their norms let expect, rho |v|^2.
double CertificateSums::Spread() const {
  if (squared_norm == 0) return 0;
  const double rho = squared_error / squared_norm;
  return std::sqrt(std::max(0.0, error_error - 2 * rho * error_norm + rho * rho * norm_norm));
}

// As many messages of one norm would say as much: one if all but one are nearly zero.
double CertificateSums::EffectiveMessages() const {
  return norm_norm > 0 ? squared_norm * squared_norm / norm_norm : 0;
}

Verdict Judge(const CertificateSums& sums) {
  if (std::isnan(sums.bound)) return Verdict::kUnbounded;
  // fp32 rounds what is decoded, by up to 2^-24 of it.
  const double rounding = 0x1p-40 * sums.squared_norm;
  const double excess = sums.squared_error - sums.bound - rounding;
  const bool are_enough = sums.EffectiveMessages() > kFewestMessages * (1 - 1e-9);
  if (excess > kBeyondChance * sums.Spread() && are_enough) {
    return Verdict::kExceeded;
  }
  return sums.bound > kLooseBound * sums.squared_error ? Verdict::kLoose : Verdict::kHolds;
}

Certificate::Certificate(const BucketPlan& plan, std::span<const ParameterShape> parameters) {
  slices_.resize(plan.buckets.size());
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    if (plan.buckets[b].exact) continue;
    for (const BucketSlot& slot : plan.buckets[b].slots) {
      const ParameterShape& parameter = parameters[slot.parameter];
      slices_[b].push_back({layers_.size(), slot.offset, slot.offset + parameter.elements});
      layers_.push_back(parameter.name);
    }
  }
  sums_.resize(layers_.size() + 1);
}

const theory::CodecBounds& Certificate::BoundsOf(const Codec& codec, size_t coordinates) {
  const auto [place, is_new] = known_.try_emplace({codec.spec(), coordinates});
  if (is_new) place->second = theory::BoundsOf(codec, coordinates);
  return place->second;
}

void Certificate::Add(const MeasuredMessage& m) {
  const size_t n = m.input.size();
  if (n == 0 || slices_[m.bucket].empty()) return;
  if (m.codec->codec_class() == CodecClass::kLossless) return;
  const std::lock_guard lock(mutex_);
  const Result<FrameSummary> frame = InspectFrame(m.frame, n);
  const bool exact = frame.ok() && frame->variance;
  // Such a frame tells the mean over all coordinates. Blocks of zeros have no error, so others
  // may have more than the mean: at most as much as if all but the zeros shared the whole.
  const double whole = exact ? *frame->variance * static_cast<double>(n) : 0;
  const auto live = static_cast<double>(n - std::ranges::count(m.input, 0.0f));
  const TileGeometry runs = RunsOf(*m.codec, n);
  const auto fitted = theory::FittedFormat(*m.codec, m.frame);
  std::map<size_t, theory::CodecBounds> of_fitted;  // by coordinates
  const auto bounds_of = [&](size_t size) -> const theory::CodecBounds& {
    if (!fitted) return BoundsOf(*m.codec, size);
    const auto [place, is_new] = of_fitted.try_emplace(size);
    if (is_new) place->second = theory::BoundsOf(*fitted, size);
    return place->second;
  };
  const double most_bits = BoundsOf(*m.codec, n).frame_bits;

  // Of [begin, end) of the message, and of all runs that meet it.
  const auto add = [&](size_t begin, size_t end, CertificateSums* sums) {
    CertificateSums more = Measured(m, most_bits, begin, end);
    if (exact) {
      more.bound = whole * std::min(1.0, more.coordinates / std::max(live, 1.0));
      more.worst_case = kNan;
    } else {
      for (size_t run = runs.BucketAt(begin); run < runs.buckets(); ++run) {
        const Piece piece = runs.Bucket(run);
        if (piece.begin >= end) break;
        const theory::CodecBounds& bounds = bounds_of(piece.size);
        const double square = SquaredNorm(m.input.subspan(piece.begin, piece.size));
        more.bound += bounds.variance.value_or(kNan) * square;
        more.worst_case += bounds.worst_case.value_or(kNan) * square;
      }
    }
    *sums += more;
  };
  for (const Slice& slice : slices_[m.bucket]) {
    const size_t begin = std::max(slice.begin, m.part.begin);
    const size_t end = std::min(slice.end, m.part.begin + n);
    if (begin < end) add(begin - m.part.begin, end - m.part.begin, &sums_[slice.layer]);
  }
  add(0, n, &sums_.back());
}

Status Certificate::Gather(Communicator* comm) {
  const std::lock_guard lock(mutex_);
  // No sum is changed before all have come, so that after a loss they can be gathered again.
  std::vector<CertificateSums> all = sums_;
  for (int rank = 1; rank < comm->world_size(); ++rank) {
    std::vector<CertificateSums> theirs = sums_;
    const std::span bytes(reinterpret_cast<uint8_t*>(theirs.data()),
                          theirs.size() * sizeof(CertificateSums));
    EQ_RETURN_IF_ERROR(comm->Broadcast(rank, bytes));
    for (size_t i = 0; i < all.size(); ++i) all[i] += theirs[i];
  }
  if (comm->rank() != 0) std::ranges::fill(all, CertificateSums{});
  sums_ = std::move(all);
  return Status::Ok();
}

std::vector<json> Certificate::Lines(int64_t step, int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  std::vector<json> lines;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const CertificateSums& s = sums_[i];
    if (s.messages == 0) continue;
    const auto relative = [&](double x) { return NumberOrNull(x / s.squared_norm); };
    lines.push_back({{"step", step},
                     {"epoch", epoch},
                     {"layer", i < layers_.size() ? layers_[i] : ""},
                     {"messages", static_cast<int64_t>(s.messages)},
                     {"coordinates", static_cast<int64_t>(s.coordinates)},
                     {"nmse", relative(s.squared_error)},
                     {"noise", s.squared_error / s.coordinates},
                     {"spread", relative(s.Spread())},
                     {"bound", relative(s.bound)},
                     {"worst_case", relative(s.worst_case)},
                     {"bits", s.bits / s.coordinates},
                     {"bits_bound", s.bits_bound / s.coordinates},
                     {"verdict", VerdictName(Judge(s))}});
  }
  return lines;
}

void Certificate::Forget() {
  const std::lock_guard lock(mutex_);
  std::ranges::fill(sums_, CertificateSums{});
}

std::vector<json> Certificate::TakeLines(int64_t step, int64_t epoch) {
  std::vector<json> lines = Lines(step, epoch);
  Forget();
  return lines;
}

json Certificate::SaveState() const {
  const std::lock_guard lock(mutex_);
  json sums = json::array();
  for (const CertificateSums& s : sums_) {
    json numbers = json::array();
    for (const double x : std::bit_cast<Numbers>(s)) numbers.push_back(NumberOrNull(x));
    sums.push_back(std::move(numbers));
  }
  return {{"layers", layers_}, {"sums", std::move(sums)}};
}

Status Certificate::LoadState(const json& state) {
  Status no_state = CorruptData("the certificate in the checkpoint is not one");
  if (!state.is_object() || !state.contains("layers") || !state.contains("sums")) {
    return no_state;
  }
  const json& sums = state["sums"];
  if (!state["layers"].is_array() || !sums.is_array()) return no_state;
  std::vector<CertificateSums> loaded;
  for (const json& line : sums) {
    Numbers numbers{};
    if (!line.is_array() || line.size() != numbers.size()) return no_state;
    for (size_t f = 0; f < numbers.size(); ++f) {
      if (!line[f].is_null() && !line[f].is_number()) return no_state;
      numbers[f] = line[f].is_null() ? kNan : line[f].get<double>();
    }
    loaded.push_back(std::bit_cast<CertificateSums>(numbers));
  }
  if (loaded.size() != state["layers"].size() + 1) return no_state;
  std::map<std::string, size_t> places;
  for (const json& name : state["layers"]) {
    if (!name.is_string()) return no_state;
    places.try_emplace(name.get<std::string>(), places.size());
  }
  if (places.size() + 1 != loaded.size()) return no_state;
  const auto is_there = [&](const std::string& name) { return places.contains(name); };
  if (places.size() != layers_.size() || !std::ranges::all_of(layers_, is_there)) {
    return Status::Ok();
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < layers_.size(); ++i) sums_[i] = loaded[places.at(layers_[i])];
  sums_.back() = loaded.back();
  return Status::Ok();
}

}  // namespace elastiquant
