// Whether a run without a centre may diverge, as far as it can be known before it begins.
#pragma once

#include <string>

#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

// Returns why a run with these options may diverge, in words that complete "warning: ", or
// nothing. Only DCD and ECD are tried: they converge only under codecs of small errors, and
// have no step that could be made smaller. All other algorithms find a step for any codec
// (SearchGossipStep). A trial takes a fraction of a second on a few workers. For wrong options
// it returns nothing, too, because GossipNode::Make tells what is wrong with them.
std::string DoubtAbout(const GossipOptions& options);

}  // namespace elastiquant
