// What the rules of bit_policy.h are made of; for the files that define them.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/policy/bit_policy.h"

namespace elastiquant::policy {

// The keys of one policy. Reading one also says that the policy has it.
class PolicyKeys {
 public:
  explicit PolicyKeys(const SpecPart& part) : part_(part) {}

  // Returns the number, which must be in [least, most].
  double Number(const std::string& key, double fallback, double least, double most);
  bool YesOrNo(const std::string& key, bool fallback);
  // Returns numbers in [least, most], which are written with '/' between them.
  std::vector<double> List(const std::string& key, const std::string& fallback, double least,
                           double most);

  // Returns the first error: a value that is not valid, or a key that nobody has read.
  Status Check() const;
  // Returns NAME:KEY=VALUE,... with all that was read.
  std::string Canonical() const;

 private:
  std::string Text(const std::string& key, const std::string& fallback);
  void Refuse(const std::string& key, const std::string& valid);

  const SpecPart& part_;
  std::vector<std::pair<std::string, std::string>> read_;
  Status error_;
};

// Whether the numbers of a state are as many as they should be, and finite.
inline bool IsState(std::span<const double> state, size_t size) {
  if (state.size() != size) return false;
  for (const double v : state) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}
// Sums of the layers' own squares, and of the squares of the mean.
double OwnSquare(const Observation& round);
double SquareOfMean(const Observation& round);

using BitPolicyMaker = std::unique_ptr<BitPolicy> (*)(PolicyKeys&, const BitContext&);
std::unique_ptr<BitPolicy> MakeAdaQuantFl(PolicyKeys& keys, const BitContext& context);
std::unique_ptr<BitPolicy> MakeAqg(PolicyKeys& keys, const BitContext& context);
std::unique_ptr<BitPolicy> MakeDAdaQuant(PolicyKeys& keys, const BitContext& context);
std::unique_ptr<BitPolicy> MakeDqSgd(PolicyKeys& keys, const BitContext& context);
std::unique_ptr<BitPolicy> MakeFedDq(PolicyKeys& keys, const BitContext& context);
std::unique_ptr<BitPolicy> MakeFixedBits(PolicyKeys& keys, const BitContext& context);
std::unique_ptr<BitPolicy> MakeNoiseBits(PolicyKeys& keys, const BitContext& context);

}  // namespace elastiquant::policy
