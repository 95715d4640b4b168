#include "elastiquant/base/link_spec.h"

#include <charconv>
#include <cmath>
#include <string>

namespace elastiquant {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kRates[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
constexpr Unit kDelays[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
// A slower link would make times that are too long to be counted in nanoseconds.
constexpr double kLeastRate = 1;     // bits a second
constexpr double kMostDelay = 3600;  // seconds

// "20mbit" under kRates gives 2e7.
template <size_t n>
std::optional<double> ParseQuantity(std::string_view text, const Unit (&units)[n]) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  for (const Unit& u : units) {
    if (u.name == unit) return number * u.factor;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> ParseDelay(std::string_view text) {
  const std::optional<double> delay = ParseQuantity(text, kDelays);
  return delay && *delay <= kMostDelay ? delay : std::nullopt;
}

Result<LinkSpec> ParseLink(std::string_view text) {
  const size_t comma = text.find(',');
  LinkSpec link;
  const std::optional<double> rate = ParseQuantity(text.substr(0, comma), kRates);
  std::optional<double> delay = 0.0;
  if (comma != std::string_view::npos) delay = ParseDelay(text.substr(comma + 1));
  if (!rate || *rate < kLeastRate || !delay) {
    return InvalidArgument(
        "link \"" + std::string(text) +
        "\": give RATE or RATE,DELAY, such as 20mbit,10ms; RATE is a number with kbit, mbit or "
        "gbit, from 0.001kbit on, DELAY a number with us, ms or s, up to 3600s");
  }
  link.bits_per_second = *rate;
  link.delay_seconds = *delay;
  return link;
}

}  // namespace elastiquant
