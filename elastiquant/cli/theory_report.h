// What theory says of one setting of the elastic quantiser, for `elastiquant theory`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/elastic/elastic_format.h"
#include "elastiquant/theory/minimax_levels.h"
#include "elastiquant/theory/variance_bound.h"
#include "elastiquant/theory/worst_vector.h"

namespace elastiquant::cli {

struct TheorySetting {
  std::string levels = "exp";  // exp, uniform, minimax, or a list: 0.1/0.3/1 or 0.1,0.3,1
  std::string p = "auto";
  int bits = 4;
  uint32_t bucket = 512;
  std::string norm = "linf";
};

struct RatioChoice {
  float p = 0;
  double variance_bound = 0, worst_case = 0;
};

struct TheoryReport {
  std::string spec;  // of the codec with these levels
  ElasticFormat format;
  double d = 0, q = 0;

  theory::VarianceTerms terms;
  double alq_bound = 0;
  double worst_case = 0;
  theory::WorstVector vector;  // whose variance is the lower bound
  double equal_vector = 0;
  std::optional<theory::MinimaxLevels> minimax;  // for l1, l2, linf
  // p by the codec's rule and by the exact worst case; absent with 2 bits, where p plays no
  // part.
  std::optional<RatioChoice> rule, exact;

  double nonzeros = 0;          // at most, in expectation
  double code_length_bits = 0;  // of a bucket under Elias omega, its norm included
  double fixed_bits = 0;        // of a bucket at fixed width, its norm included
  std::optional<double> published_code_length, explicit_code_length;  // p = 1/2, l2
  double gaussian = 0;        // measured NMSE of Gaussian values
  double gaussian_limit = 0;  // of unbiased codes of as many bits as fixed width takes
};

// Fails with kInvalidArgument, listing what is valid.
Result<std::string> TheorySpec(const TheorySetting& setting);
Result<TheoryReport> MakeTheoryReport(const TheorySetting& setting);

// NMSE that the codec measures on Gaussian values: some 10^5 of them, several draws.
Result<double> MeasureOnGaussian(const std::string& spec, uint32_t bucket);

// One family of levels at one number of bits.
struct CurvePoint {
  int bits = 0;
  double bits_per_coordinate = 0;  // with the norm
  double variance_bound = 0, worst_case = 0, gaussian = 0;
};
struct Curve {
  std::string family;  // "uniform", "exp p=1/2", "elastic", "elastic, exact p", "minimax"
  std::vector<CurvePoint> points;
};
// 2 to 8 bits; minimax for l1, l2 and linf only.
Result<std::vector<Curve>> MakeCurves(const TheorySetting& setting);

}  // namespace elastiquant::cli
