#include "elastiquant/policy/bit_policy.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/base/number.h"
#include "elastiquant/policy/bit_rules.h"

namespace elastiquant::policy {
namespace {

const std::map<std::string_view, BitPolicyMaker>& Makers() {
  static const std::map<std::string_view, BitPolicyMaker> makers = {
      {"adaquantfl", MakeAdaQuantFl}, {"aqg", MakeAqg},     {"dadaquant", MakeDAdaQuant},
      {"dq-sgd", MakeDqSgd},          {"feddq", MakeFedDq}, {"fixed", MakeFixedBits},
      {"noise", MakeNoiseBits}};
  return makers;
}

class FixedBits : public BitPolicy {
 public:
  FixedBits(const BitContext& bit_context, double bits) : BitPolicy(bit_context), bits_(bits) {}

  std::vector<double> SaveState() const override { return {}; }
  Status LoadState(std::span<const double> state) override {
    return state.empty() ? Status::Ok() : CorruptData("policy 'fixed' has no state");
  }

 private:
  std::vector<double> Wanted() const override {
    return std::vector<double>(context().layers, bits_);
  }
  void Take(const Observation&) override {}

  const double bits_;
};

// Dither takes no rate outside of these.
constexpr double kLeastBits = .5, kMostBits = 8;

Status CheckContext(const BitContext& context) {
  double sum = 0;
  for (const double w : context.weights) sum += w > 0 ? w : std::nan("");
  if (std::abs(sum - 1) < 1e-6 && context.worker < context.weights.size() &&
      context.layers > 0 && context.rounds >= 0) {
    return {};
  }
  return InvalidArgument(
      "a policy of bits needs weights above 0 that add up to 1, one for each worker, and at "
      "least one layer");
}

}  // namespace

double BitsOfLevels(double levels) { return std::log2(levels + 1) + 1; }
double LevelsOfBits(double bits) { return std::exp2(bits - 1) - 1; }

std::vector<double> BitPolicy::Bits() const {
  std::vector<double> bits = Wanted();
  for (double& b : bits) {
    // What is a hair above a step by rounding is not worth another step.
    const double steps = std::ceil(b / kBitStep - 1e-6);
    b = std::clamp(std::isnan(b) ? most_ : steps * kBitStep, least_, most_);
  }
  return bits;
}

void BitPolicy::Observe(const Observation& round) {
  if (!std::isfinite(round.loss) || round.layers.size() != context_.layers) return;
  Take(round);
}

bool FollowsLoss(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  return name == "adaquantfl" || name == "dadaquant";
}

Result<std::unique_ptr<BitPolicy>> ParseBitPolicy(std::string_view text,
                                                  const BitContext& context) {
  EQ_RETURN_IF_ERROR(CheckContext(context));
  EQ_ASSIGN_OR_RETURN(const Spec spec, ParseSpec(text));
  const auto maker = Makers().find(spec.codec.name);
  if (maker == Makers().end() || !spec.modifiers.empty()) {
    std::string list;
    for (const auto& [name, unused] : Makers()) {
      list += (list.empty() ? "" : ", ") + std::string(name);
    }
    return InvalidArgument("policy of bits '" + std::string(text) +
                           "' is not known; valid are: " + list);
  }
  PolicyKeys keys(spec.codec);
  std::unique_ptr<BitPolicy> policy = maker->second(keys, context);
  policy->least_ = keys.Number("least", kLeastBits, kLeastBits, kMostBits);
  policy->most_ = keys.Number("most", kMostBits, policy->least_, kMostBits);
  EQ_RETURN_IF_ERROR(keys.Check());
  policy->spec_ = keys.Canonical();
  return policy;
}

std::unique_ptr<BitPolicy> MakeFixedBits(PolicyKeys& keys, const BitContext& context) {
  return std::make_unique<FixedBits>(context, keys.Number("bits", 2, kLeastBits, kMostBits));
}

double OwnSquare(const Observation& round) {
  double sum = 0;
  for (const LayerObservation& layer : round.layers) sum += layer.own_square;
  return sum;
}

double SquareOfMean(const Observation& round) {
  double sum = 0;
  for (const LayerObservation& layer : round.layers) sum += layer.square_of_mean;
  return sum;
}

std::string PolicyKeys::Text(const std::string& key, const std::string& fallback) {
  std::string text(SpecValue(part_, key, fallback));
  read_.emplace_back(key, text);
  return text;
}

void PolicyKeys::Refuse(const std::string& key, const std::string& valid) {
  if (!error_.ok()) return;
  error_ = BadValueOf("policy '" + part_.name + "'", key, read_.back().second, valid);
}

double PolicyKeys::Number(const std::string& key, double fallback, double least, double most) {
  double value = 0;
  if (!ParseNumber(Text(key, NumberText(fallback)), &value) ||
      !(value >= least && value <= most)) {
    Refuse(key, "numbers from " + NumberText(least) + " to " + NumberText(most));
    return fallback;
  }
  read_.back().second = NumberText(value);
  return value;
}

bool PolicyKeys::YesOrNo(const std::string& key, bool fallback) {
  const std::string text = Text(key, fallback ? "yes" : "no");
  if (text != "yes" && text != "no") Refuse(key, "yes, no");
  return text == "yes";
}

std::vector<double> PolicyKeys::List(const std::string& key, const std::string& fallback,
                                     double least, double most) {
  std::vector<double> values;
  const std::string text = Text(key, fallback) + "/";
  for (size_t begin = 0, end; (end = text.find('/', begin)) != std::string::npos;
       begin = end + 1) {
    double value = 0;
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    if (!ParseNumber(part, &value) || !(value >= least && value <= most)) {
      Refuse(key, "numbers from " + NumberText(least) + " to " + NumberText(most) +
                      " with '/' between them");
      value = least;
    }
    values.push_back(value);
  }
  std::ranges::sort(values);
  return values;
}

Status PolicyKeys::Check() const {
  EQ_RETURN_IF_ERROR(error_);
  const auto is_read = [this](const auto& given) {
    return std::ranges::any_of(read_,
                               [&](const auto& own) { return own.first == given.first; });
  };
  const auto unread = std::ranges::find_if_not(part_.pairs, is_read);
  if (unread == part_.pairs.end()) return {};
  std::string list;
  for (const auto& [own, value] : read_) {
    if (!list.empty()) list += ", ";
    list += own;
  }
  return InvalidArgument("policy '" + part_.name + "' has no parameter '" + unread->first +
                         "'; it has " + list);
}

std::string PolicyKeys::Canonical() const {
  std::string text = part_.name;
  char before = ':';
  for (const auto& [key, value] : read_) {
    text += before;
    text += key;
    text += '=';
    text += value;
    before = ',';
  }
  return text;
}

}  // namespace elastiquant::policy
