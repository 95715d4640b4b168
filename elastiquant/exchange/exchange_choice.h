// Which way to the mean a codec's messages take, by the number of workers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Of three workers: at 1.5 bits both ways err about alike on real gradients.
inline constexpr double kMostBitsOfThree = 1.25;

struct ExchangeChoice {
  std::shared_ptr<const Codec> codec;  // that messages travel under
  std::shared_ptr<const Codec> down;   // means, on their way back; null: `codec`
  std::optional<Exchange> exchange;    // absent: as the codec asks
  bool is_slower = false;              // `codec` has a lower rate than was asked for

  Exchange way() const { return exchange.value_or(codec->exchange()); }
  // "two-phase", "all-gather of dither:bits=0.5", "two-phase, back as dither:bits=2.5"
  std::string Describe() const;
};

// asked: "codec", as it asks for; the name of an Exchange; or "auto". Of two workers "auto"
// all-gathers what would go by two phases: the same bytes, but each frame is quantised once. If
// that has the error V |v|^2, the mean of two has V / 2 |v|^2 then, and (V / 4 + V m) |v|^2 by
// two phases, which leave the owner's own part exact; m, the squared norm of the mean over that
// of a message, is from 1/2 to 1. Three workers would send 2 frames each in place of 4/3: for
// the same bytes they all-gather at 2/3 of the rate, if that is free and up to
// kMostBitsOfThree; a mean of messages at so low a rate is noise in good part, and costs most
// to send. (Not of codecs that lose nothing, nor of biased ones: that of signs is a vote by two
// phases. docs/codecs.md, "Exchanges", has measurements.) `down` is null, or another codec for
// means on their way back, which makes "auto" two phases. The same arguments give the same on
// all workers. Errors: InvalidArgument for an unknown name, or an exchange that the codec
// cannot go by.
Result<ExchangeChoice> ChooseExchange(std::shared_ptr<const Codec> codec,
                                      std::shared_ptr<const Codec> down, std::string_view asked,
                                      int world_size);

// Errors: InvalidArgument if messages of the codec cannot go this way.
Status CheckExchange(const Codec& codec, const Codec* down, Exchange way, int world_size);

}  // namespace elastiquant
