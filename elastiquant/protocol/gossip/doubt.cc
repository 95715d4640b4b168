#include "elastiquant/protocol/gossip/doubt.h"

#include "elastiquant/codec/codec.h"
#include "elastiquant/protocol/gossip/trial.h"

namespace elastiquant {
namespace {

// A round multiplies squared differences by a factor. Under the codecs with which training
// diverged it was above this one, and under the others it was well below (docs/gossip.md).
constexpr double kTooNearOne = .98;
// The search for a step makes shorter trials. Under some codecs models come together in these,
// and come apart afterwards.
constexpr int kTimesAsLong = 4;

Result<double> ContractionUnder(const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  if (codec->codec_class() == CodecClass::kLossless) return 0;
  EQ_ASSIGN_OR_RETURN(const GossipTrial trial, GossipTrial::Make(options));
  return trial.Contraction(1, kTimesAsLong);
}

}  // namespace

std::string DoubtAbout(const GossipOptions& options) {
  const bool is_dcd = options.kind == GossipKind::kDcd;
  if (!is_dcd && options.kind != GossipKind::kEcd) return {};
  const Result<double> contraction = ContractionUnder(options);
  if (!contraction.ok() || *contraction <= kTooNearOne) return {};
  return std::string(is_dcd ? "dcd" : "ecd") + " under " + options.codec + " on " +
         options.graph->spec() + " may diverge: models " +
         (*contraction < 1 ? "hardly come together" : "come apart") +
         " even without gradients. Take a finer codec, or choco, which trains with any";
}

}  // namespace elastiquant
