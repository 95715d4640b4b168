// Arbitrary bytes as a neighbour's message: what is not refused must leave a worker that goes
// on.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/protocol/gossip/message.h"
#include "fuzz/fuzz.h"

namespace {

using namespace elastiquant;

constexpr size_t kElements = 40;

GossipOptions OptionsOf(uint8_t what) {
  static const auto ring = Graph::Parse("ring", 4, 1).value();
  static const auto pairs = Graph::Parse("random-pairs", 4, 1).value();
  constexpr GossipKind kKinds[] = {GossipKind::kDpsgd,   GossipKind::kTracking,
                                   GossipKind::kEcd,     GossipKind::kChoco,
                                   GossipKind::kPushSum, GossipKind::kAdPsgd};
  constexpr const char* kCodecs[] = {"fp32", "dither:bits=2", "topk:ratio=0.2"};
  GossipOptions options{.kind = kKinds[what % std::size(kKinds)], .elements = kElements};
  options.codec = kCodecs[what / 8 % std::size(kCodecs)];
  options.graph = what >= 128 && options.kind == GossipKind::kChoco ? pairs : ring;
  options.rank = what % 2;
  return options;
}

// Bytes whose header is right as far as its checksum and its algorithm.
std::vector<uint8_t> Repaired(std::span<const uint8_t> bytes, GossipKind kind) {
  std::vector<uint8_t> message(bytes.begin(), bytes.end());
  if (message.size() < GossipHeaderBytes(0)) return message;
  message[3] = static_cast<uint8_t>(kind);
  const size_t header = std::min(GossipHeaderBytes(message[9]), message.size());
  const uint32_t checksum = Crc32c(std::span(message).subspan(8, header - 8));
  std::memcpy(&message[4], &checksum, sizeof(checksum));
  return message;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const GossipOptions options = OptionsOf(data[0]);
  const auto node = GossipNode::Make(options, std::vector<float>(kElements, 1)).value();
  const std::vector<uint8_t> message = Repaired({data + 2, size - 2}, options.kind);
  const int from = data[1] % 4;
  const uint64_t before = node->round();
  if (!node->OnMessage(from, message).ok()) FUZZ_CHECK(node->round() == before);
  // What was accepted may have made weights too large to be encoded, but nothing else.
  const auto sends = node->OnMoved(std::vector<float>(kElements, .5f));
  FUZZ_CHECK(sends.ok() || sends.status().code() == StatusCode::kNonFinite ||
             sends.status().code() == StatusCode::kOutOfRange);
  (void)node->OnMessage(from, message);
  return 0;
}
