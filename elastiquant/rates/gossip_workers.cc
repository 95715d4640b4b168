#include "elastiquant/rates/gossip_workers.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "elastiquant/kernels/norms.h"

namespace elastiquant::rates {

Result<bool> GossipWorkers::Round(std::span<const float> kick) {
  struct Letter {
    int from, to;
    std::vector<uint8_t> bytes;
  };
  std::vector<Letter> mail;
  const auto post = [&mail](size_t from, const GossipSends& sends) {
    for (const GossipSend& s : sends) {
      mail.push_back({static_cast<int>(from), s.to, {s.bytes.begin(), s.bytes.end()}});
    }
  };
  std::vector<float> moved(problem.elements());
  for (size_t w = 0; w < nodes.size(); ++w) {
    EQ_ASSIGN_OR_RETURN(const GossipSends early, nodes[w]->OnRound());
    post(w, early);
    problem.Move(w, nodes[w]->weights(), moved);
    for (size_t e = 0; e < moved.size() && !kick.empty(); ++e) {
      moved[e] += kick[w * moved.size() + e];
    }
    if (!AllFinite(moved)) return false;
    const Result<GossipSends> sends = nodes[w]->OnMoved(moved);
    if (sends.status().code() == StatusCode::kNonFinite ||
        sends.status().code() == StatusCode::kOutOfRange) {
      return false;
    }
    EQ_RETURN_IF_ERROR(sends.status());
    post(w, *sends);
  }
  for (size_t m = 0; m < mail.size(); ++m) {  // answers come in while it is delivered
    const Letter letter = std::move(mail[m]);
    const auto to = static_cast<size_t>(letter.to);
    EQ_ASSIGN_OR_RETURN(const GossipSends answers,
                        nodes[to]->OnMessage(letter.from, letter.bytes));
    post(to, answers);
  }
  return true;
}

std::vector<double> GossipWorkers::Weights() const {
  std::vector<double> all;
  for (const auto& node : nodes) {
    all.insert(all.end(), node->weights().begin(), node->weights().end());
  }
  return all;
}

Result<GossipWorkers> GossipWorkers::Make(const GossipProblem& problem,
                                          const GossipOptions& options) {
  GossipWorkers workers{.problem = problem};
  for (size_t w = 0; w < options.graph->nodes(); ++w) {
    GossipOptions own = options;
    own.rank = static_cast<int>(w);
    const std::vector<float> start(problem.elements());
    EQ_ASSIGN_OR_RETURN(auto node, GossipNode::Make(own, start));
    workers.nodes.push_back(std::move(node));
  }
  return workers;
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

}  // namespace elastiquant::rates
