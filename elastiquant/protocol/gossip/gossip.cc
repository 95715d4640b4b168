#include "elastiquant/protocol/gossip/gossip.h"

#include <algorithm>
#include <string>
#include <utility>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/random.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/graph/parts.h"
#include "elastiquant/protocol/gossip/pairwise.h"
#include "elastiquant/protocol/gossip/rounds.h"

namespace elastiquant {
namespace {

Status CheckOptions(const GossipOptions& o, std::span<const float> start) {
  if (!o.graph || o.rank < 0 || static_cast<size_t>(o.rank) >= o.graph->nodes()) {
    return InvalidArgument("a worker's rank must be that of a node of the graph");
  }
  if (o.elements == 0 || o.elements > kMaxFrameElements || start.size() != o.elements) {
    return InvalidArgument("a model must have at least one value, and fewer than 2^32");
  }
  if (!(o.step > 0 && o.step <= 1)) {
    return InvalidArgument("the gossip step must be above 0 and at most 1");
  }
  if (o.delay < 0 || o.delay > 1) {
    return InvalidArgument("messages can be waited for at once, or a round later");
  }
  if (o.graph->is_balanced() || o.kind == GossipKind::kPushSum) return {};
  return InvalidArgument(
      "only sgp can use a graph on which some take more than they give, as on " +
      o.graph->spec() + ": " + CheckDoublyStochastic(o.graph->AtFirst()).message());
}

}  // namespace

Result<std::unique_ptr<GossipNode>> GossipNode::Make(const GossipOptions& options,
                                                     std::span<const float> start) {
  EQ_RETURN_IF_ERROR(CheckOptions(options, start));
  if (options.kind == GossipKind::kAdPsgd) return GossipPairs::Make(options, start);
  return GossipRounds::Make(options, start);
}

Status GossipNode::Check(GossipOptions options) {
  const float start = 0;
  options.elements = 1;
  options.shapes.clear();
  return Make(options, {&start, 1}).status();
}

Status CheckThoseLeft(GossipKind kind, const Graph& graph, const std::vector<int>& left) {
  if (kind != GossipKind::kPushSum) return {};
  const auto edge = EdgeBetween(graph, PartsOf(graph, left));
  if (!edge) return {};
  const std::string giver = std::to_string(edge->first);
  return Unavailable(
      "sgp cannot go on with those of graph " + graph.spec() + " that are left: worker " +
      giver + " gives to worker " + std::to_string(edge->second) +
      ", from which no way leads back to it, so that it would give all its weight away and "
      "its model would become NaN. Begin again where the run was last saved, with all workers, "
      "or take a graph on which the others still reach each other, such as exponential");
}

Result<EdgeOptions> EdgeOf(const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(std::shared_ptr<const Codec> codec, MakeCodec(options.codec));
  if (!options.shapes.empty()) {
    EQ_ASSIGN_OR_RETURN(codec, CodecForShapes(std::move(codec), options.shapes));
  }
  // Other codecs may take as much of hardly any gradient, which is seen when they do.
  if (codec->codec_class() == CodecClass::kLossless) {
    EQ_RETURN_IF_ERROR(CheckGossipFrame(codec->MaxFrameBytes(options.elements)));
  }
  return EdgeOptions{.codec = std::move(codec), .elements = options.elements};
}

uint64_t GossipNode::HashOfShown(
    const std::function<std::span<const float>(size_t)>& replica) const {
  uint64_t hash = 0;
  for (size_t s = 0; s < streams(); ++s) {
    std::span<const float> values = replica(s);
    if (values.empty() && s == 0) values = start();
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    hash = Mix64(hash ^ Crc32c({bytes, values.size_bytes()}));
  }
  return hash;
}

uint64_t GossipNode::HashOf(int peer) const {
  return HashOfShown([&](size_t stream) { return ReplicaOf(peer, stream); });
}

uint64_t GossipNode::HashAt(int peer) const {
  return HashOfShown([&](size_t stream) { return ReplicaAt(peer, stream); });
}

uint64_t GossipNode::FirstWithout(int peer) const {
  const uint64_t first = round() - (is_owed() ? 1 : 0);
  for (uint64_t r = first; r < RoundsFrom(peer); ++r) {
    if (std::ranges::count(MissingIn(r), peer) > 0) return r;
  }
  return std::max(RoundsFrom(peer), first);
}

}  // namespace elastiquant
