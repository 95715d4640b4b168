#include "elastiquant/collective/link.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace elastiquant {
namespace {

using std::chrono::nanoseconds;

// Intervals that ended so long ago take no part any more: no message is waited for that late.
constexpr std::chrono::seconds kMemory{60};

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kRates[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
constexpr Unit kDelays[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

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

nanoseconds TimeOfBytes(const LinkSpec& link, uint64_t bytes) {
  return nanoseconds(std::llround(static_cast<double>(bytes) * 8 / link.bits_per_second * 1e9));
}

}  // namespace

Result<LinkSpec> ParseLink(std::string_view text) {
  const size_t comma = text.find(',');
  LinkSpec link;
  const std::optional<double> rate = ParseQuantity(text.substr(0, comma), kRates);
  std::optional<double> delay = 0.0;
  if (comma != std::string_view::npos) delay = ParseQuantity(text.substr(comma + 1), kDelays);
  if (!rate || *rate <= 0 || !delay) {
    return InvalidArgument("link \"" + std::string(text) +
                           "\": give RATE or RATE,DELAY, such as 20mbit,10ms; RATE is a number "
                           "above 0 with kbit, mbit or gbit, DELAY a number with us, ms or s");
  }
  link.bits_per_second = *rate;
  link.delay_seconds = *delay;
  return link;
}

nanoseconds WireTime(const LinkSpec& link, uint64_t n) {
  return TimeOfBytes(link, WireBytes(n));
}

nanoseconds FrameTime(const LinkSpec& link, uint64_t n) {
  return TimeOfBytes(link, std::min(n + kGlooPreambleBytes, kSegmentBytes) + kFrameHeaderBytes);
}

LinkTime LinkTimeline::Reserve(LinkTime start, nanoseconds duration) {
  while (!busy_.empty() && busy_.begin()->second < start - kMemory) busy_.erase(busy_.begin());

  LinkTime at = start;
  auto next = busy_.upper_bound(at);
  if (next != busy_.begin()) at = std::max(at, std::prev(next)->second);
  while (duration > nanoseconds::zero()) {
    next = busy_.upper_bound(at);
    const LinkTime idle_end = next == busy_.end() ? LinkTime::max() : next->first;
    const LinkTime end = idle_end - at > duration ? at + duration : idle_end;
    duration -= end - at;
    Book(at, end);
    at = end;
    if (duration > nanoseconds::zero()) at = std::prev(busy_.upper_bound(at))->second;
  }
  return at;
}

void LinkTimeline::Book(LinkTime begin, LinkTime end) {
  auto next = busy_.lower_bound(begin);
  if (next != busy_.end() && next->first == end) {
    end = next->second;
    next = busy_.erase(next);
  }
  if (next != busy_.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    busy_.emplace(begin, end);
  }
}

}  // namespace elastiquant
