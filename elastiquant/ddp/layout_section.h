// Keeps DDP's buckets in a checkpoint, as JSON: the names of each bucket's parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/ddp/ddp_plan.h"

namespace elastiquant {

std::vector<uint8_t> LayoutSection(const DdpLayout& layout,
                                   std::span<const DdpParameter> parameters);

// Reads what LayoutSection returned. Fails with CorruptData if the section is no such list, or
// names a parameter that does not exist.
Result<DdpLayout> ReadLayoutSection(std::span<const uint8_t> section,
                                    std::span<const DdpParameter> parameters);

}  // namespace elastiquant
