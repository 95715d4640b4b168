// The emulated links of a job, as --link describes them: one access link for each worker, and
// wires of their own between single pairs, so that clusters of clusters can be tried.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "elastiquant/base/link_spec.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

struct Links {
  // Of each worker, shared by what it exchanges with all to whom it has no wire.
  std::optional<LinkSpec> access = {};
  // By pair, the lower number first. A wire carries as much in each direction, and nothing
  // else.
  std::map<std::pair<int, int>, LinkSpec> wires = {};

  // Fails with kInvalidArgument if a wire is of a worker that is not one of so many.
  Status Check(int workers) const;
  // Returns the wires of one worker by peer.
  std::map<int, LinkSpec> WiresOf(int worker) const;
};

// Takes "RATE[,DELAY]" (ParseLink) or the name of a file, whose lines are "A B RATE[,DELAY]"
// for the wire between workers A and B, and "* RATE[,DELAY]", at most once, for the access
// link. Without that line, pairs that have no wire are not slowed. What follows '#' is a
// comment. Fails with kInvalidArgument, which names the line.
Result<Links> ReadLinks(const std::string& text_or_file);
// The same of a file's text; `name` is what errors call it.
Result<Links> ParseLinks(const std::string& text, const std::string& name);

}  // namespace elastiquant
