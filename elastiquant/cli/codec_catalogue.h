// Lists of specs that follow from what is registered, and what can be told of a codec without
// a gradient.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant::cli {

// Every registered codec with its defaults, then with each modifier of its own, and a few other
// settings. A rate that has a default is said: "elastic:bits=4".
std::vector<std::string> DefaultSpecs();

// DefaultSpecs(), and every registered codec at each usual value of the parameter that sets its
// rate, as far as it takes the value, and with each modifier of its own.
std::vector<std::string> RateSpecs();

struct CodecFacts {
  std::vector<std::pair<size_t, double>> nmse_bounds;  // by n, where one is known
  Exchange exchange{};
  std::vector<std::string> state;
  bool has_momentum = false;
  // Bits a coordinate of messages of kFactsElements values: of a Gaussian one, absent if the
  // codec cannot encode it, and at most.
  std::optional<double> nominal_bits;
  double worst_case_bits = 0;
};
inline constexpr size_t kFactsElements = size_t{1} << 20;

// `gaussian` has kFactsElements values.
CodecFacts FactsOf(const Codec& codec, std::span<const float> gaussian);

}  // namespace elastiquant::cli
