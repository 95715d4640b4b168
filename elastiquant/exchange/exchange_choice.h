// Chooses by which exchange a codec's messages come to their mean, by the number of workers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

// The highest rate, in bits a coordinate, at which "auto" lets three workers all-gather. At 1.5
// bits both ways err about alike on real gradients.
inline constexpr double kMostBitsOfThree = 1.25;

// How the messages of a bucket travel.
struct ExchangeChoice {
  std::shared_ptr<const Codec> codec;  // the one that messages travel under
  std::shared_ptr<const Codec> down;   // for means on their way back; null: `codec`
  std::optional<Exchange> exchange;    // absent: the codec's own
  bool is_slower = false;              // `codec` has a lower rate than was asked for

  Exchange way() const { return exchange.value_or(codec->exchange()); }
  // Returns text such as "two-phase", "all-gather of dither:bits=0.5" or "two-phase, back as
  // dither:bits=2.5".
  std::string Describe() const;
};

// Chooses the exchange of a codec's messages. `asked` is "codec", for the exchange that the
// codec asks for; "two-phase", "all-gather", "sparse-scatter" or "integer-sum"; or "auto".
// `down` is null, or another codec for means on their way back, with which "auto" keeps to two
// phases. The same arguments give the same choice on all workers. Fails with InvalidArgument
// for an unknown name, or an exchange that the codec cannot go by.
//
// With two workers "auto" all-gathers what would go by two phases: that sends the same bytes,
// but each frame is quantised once. If a frame has the error V |v|^2, the mean of two then has
// V / 2 |v|^2. By two phases it has (V / 4 + V m) |v|^2, as these leave the owner's own part
// exact; m, the squared norm of the mean over that of a message, is from 1/2 to 1. Three
// workers would send 2 frames each in place of 4/3. For the same bytes they all-gather at 2/3
// of the rate, if the codec's rate can be chosen freely and is at most kMostBitsOfThree: a mean
// of messages at so low a rate is noise in good part, and costs most to send. "auto" leaves
// alone codecs that lose nothing, and biased ones: that of signs is a vote by two phases.
// docs/codecs.md, "Exchanges", has measurements.
Result<ExchangeChoice> ChooseExchange(std::shared_ptr<const Codec> codec,
                                      std::shared_ptr<const Codec> down, std::string_view asked,
                                      int world_size);

// Returns the exchange that the codec asks for.
inline ExchangeChoice AsItAsks(std::shared_ptr<const Codec> codec) {
  return {.codec = std::move(codec), .down = nullptr, .exchange = {}};
}

// Fails with InvalidArgument if messages of the codec cannot go this way.
Status CheckExchange(const Codec& codec, const Codec* down, Exchange way, int world_size);

}  // namespace elastiquant
