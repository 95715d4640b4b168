#include "elastiquant/exchange/exchange_choice.h"

#include <utility>

#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/codec/rate.h"
#include "elastiquant/codec/remembering.h"

namespace elastiquant {
namespace {

Result<std::optional<Exchange>> ParseExchange(std::string_view asked) {
  if (asked == "auto" || asked == "codec") return {std::nullopt};
  for (const Exchange e : {Exchange::kTwoPhase, Exchange::kAllGather, Exchange::kSparseScatter,
                           Exchange::kIntegerSum}) {
    if (asked == ExchangeName(e)) return {e};
  }
  return InvalidArgument("exchange '" + std::string(asked) +
                         "' is not known; valid are: auto, codec, two-phase, all-gather, "
                         "sparse-scatter, integer-sum");
}

// Those that were made for shapes cannot be cut up.
bool NeedsWholeTensors(const Codec& codec) {
  const TensorShape shape{2, 2};
  const auto shaped = codec.WithShapes({&shape, 1});
  return shaped.ok() && *shaped != nullptr;
}

}  // namespace

std::string ExchangeChoice::Describe() const {
  std::string text(ExchangeName(way()));
  if (is_slower) text += " of " + codec->spec();
  if (down) text += ", back as " + down->spec();
  return text;
}

Result<ExchangeChoice> ChooseExchange(std::shared_ptr<const Codec> codec,
                                      std::shared_ptr<const Codec> down, std::string_view asked,
                                      int world_size) {
  ExchangeChoice choice;
  EQ_ASSIGN_OR_RETURN(choice.exchange, ParseExchange(asked));
  choice.codec = std::move(codec);
  choice.down = std::move(down);
  const CodecClass kind = choice.codec->codec_class();
  const bool has_error = kind == CodecClass::kUnbiased || kind == CodecClass::kContractive;
  const bool may_gather =
      asked == "auto" && choice.way() == Exchange::kTwoPhase && !choice.down && has_error;
  if (may_gather && world_size == 2) choice.exchange = Exchange::kAllGather;
  if (may_gather && world_size == 3 && RateOf(*choice.codec) <= kMostBitsOfThree) {
    if (auto slower = AtShareOfRate(*choice.codec, 2.0 / 3)) {
      choice.codec = std::move(slower);
      choice.exchange = Exchange::kAllGather;
      choice.is_slower = true;
    }
  }
  if (choice.exchange == Exchange::kTwoPhase && NeedsWholeTensors(*choice.codec)) {
    return InvalidArgument("exchange two-phase cuts tensors up, which codec '" +
                           choice.codec->spec() + "' needs whole: leave the exchange to it");
  }
  EQ_RETURN_IF_ERROR(CheckExchange(*choice.codec, choice.down.get(), choice.way(), world_size));
  return choice;
}

Status CheckExchange(const Codec& codec, const Codec* down, Exchange way, int world_size) {
  const std::string name = "codec '" + codec.spec() + "'";
  if (MomentumOf(codec) && way == Exchange::kTwoPhase) {
    return InvalidArgument(name +
                           " sends velocities, which cannot be encoded twice: its exchange "
                           "must be all-gather");
  }
  const bool cuts_sparse = way == Exchange::kSparseScatter || way == Exchange::kSparse;
  if (cuts_sparse && codec.exchange() != Exchange::kSparse) {
    return InvalidArgument(name +
                           " cannot go by sparse scatter-reduce, which takes the frames of "
                           "sparse codecs with values of 32 or 16 bits, or exact");
  }
  const bool adds_codes = way == Exchange::kIntegerSum;
  if (adds_codes &&
      (codec.shared_scale() == nullptr || world_size > SharedScale::kMaxWorkers)) {
    return InvalidArgument(name +
                           " cannot go by integer sums, which take the codes of terngrad, "
                           "without |ef or |rotate, of up to " +
                           std::to_string(SharedScale::kMaxWorkers) + " workers");
  }
  if (down == nullptr) return {};
  if (down->exchange() != Exchange::kTwoPhase) {
    return InvalidArgument(
        "codec '" + down->spec() +
        "' cannot be that of means on their way back, which is the second of "
        "two phases: it goes by " +
        std::string(ExchangeName(down->exchange())));
  }
  if (way != Exchange::kTwoPhase) {
    return InvalidArgument("another codec for means on their way back, '" + down->spec() +
                           "', needs an exchange of two phases, and " + name + " goes by " +
                           std::string(ExchangeName(way)));
  }
  if (down->StateFields() != codec.StateFields()) {
    return InvalidArgument("codec '" + down->spec() +
                           "' of means remembers other vectors than " + name +
                           " does: give both |ef, or neither");
  }
  return {};
}

}  // namespace elastiquant
