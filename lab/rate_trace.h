// A rate that changes over time, as that of a radio link does.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lab {

using Time = std::chrono::nanoseconds;  // since the switch began

// Bits a second, constant between two changes; after the last one it begins anew.
class RateTrace {
 public:
  // A rate for ever.
  explicit RateTrace(double bits_per_second) : pieces_{{Time(0), bits_per_second}} {}
  // Parses lines of "SECONDS BITS_PER_SECOND": how long a rate holds, and which. A rate of 0 is
  // an outage. Returns what is wrong, which is empty if nothing is.
  static std::string Parse(std::string_view text, RateTrace* trace);

  // Returns when `bits` that begin to be sent at `start` have been sent.
  Time EndOf(Time start, double bits) const;

 private:
  struct Piece {
    Time until;  // within a period; of a rate for ever there is one piece, and no end
    double rate;
  };
  RateTrace() = default;

  std::vector<Piece> pieces_;
};

}  // namespace lab
