// Whether a run without a centre may diverge, as far as it can be known before it begins.
#pragma once

#include <string>

#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

// Returns why a run with these options may diverge, in words that complete "warning: ", or
// nothing. Asked are DCD and ECD, which converge under codecs of small errors only and have no
// step that could be smaller; all others find one for any codec (SearchGossipStep). Takes a
// fraction of a second. Returns nothing for options that are wrong, too: who makes a GossipNode
// of them is told.
std::string DoubtAbout(const GossipOptions& options);

}  // namespace elastiquant
