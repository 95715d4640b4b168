#include "lab/rate_trace.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace lab {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr double kMostSeconds = 1e6;

}  // namespace

std::string RateTrace::Parse(std::string_view text, RateTrace* trace) {
  RateTrace made;
  std::istringstream lines{std::string(text)};
  double until = 0, fastest = 0;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::istringstream words(line);
    double seconds = 0, rate = 0;
    std::string rest;
    const bool good = words >> seconds >> rate && !(words >> rest) && seconds > 0 &&
                      seconds <= kMostSeconds && rate >= 0 && std::isfinite(rate);
    if (!good) return "line " + std::to_string(number) + " is not SECONDS BITS_PER_SECOND";
    until += seconds;
    fastest = std::max(fastest, rate);
    made.pieces_.push_back({Time(std::llround(until * kNanoseconds)), rate});
  }
  if (fastest <= 0) return "there is no rate above 0 in it";
  *trace = made;
  return "";
}

Time RateTrace::EndOf(Time start, double bits) const {
  if (pieces_.size() == 1) {
    return start + Time(std::llround(bits / pieces_[0].rate * kNanoseconds));
  }
  const Time period = pieces_.back().until;
  Time begin = start - start % period;  // of the period that `start` is in
  Time now = start % period;
  for (;;) {
    for (const Piece& piece : pieces_) {
      if (now >= piece.until) continue;
      const double room =
          piece.rate * static_cast<double>((piece.until - now).count()) / kNanoseconds;
      if (bits <= room && piece.rate > 0) {
        return begin + now + Time(std::llround(bits / piece.rate * kNanoseconds));
      }
      bits -= room;
      now = piece.until;
    }
    begin += period;
    now = Time(0);
  }
}

}  // namespace lab
