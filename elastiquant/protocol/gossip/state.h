// All that must be saved between two rounds for a worker of a decentralised run to go on
// exactly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/gossip/replicas.h"

namespace elastiquant {

struct GossipState {
  uint64_t round = 0;
  double weight = 1;  // push-sum's
  std::map<std::string, std::vector<float>> vectors = {};
  std::map<std::string, uint64_t> counts = {};
};

// Returns a visitor that keeps fields in the state, under their names behind `prefix`.
FieldVisitor KeepIn(GossipState* state, const std::string& prefix);

// Puts back what a state has. Once all fields have been visited, status() says whether the
// state had each of them, in its size, and nothing else.
class StateReader {
 public:
  explicit StateReader(const GossipState& state) : state_(state) {}

  FieldVisitor PutFrom(const std::string& prefix);
  Status status() const;

 private:
  const GossipState& state_;
  size_t taken_ = 0;
  std::string missing_;
};

}  // namespace elastiquant
