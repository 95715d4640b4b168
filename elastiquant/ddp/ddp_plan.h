// Plans how the buckets of DistributedDataParallel (DDP) are cut into the reducer's. DDP packs
// whatever backward finishes together, 25 MiB at a time; ours hold tensors of one codec, and
// are small enough that one is encoded while another is on its way.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/bucket_plan.h"

namespace elastiquant {

struct DdpParameter {
  ParameterShape shape;
  std::string codec;  // spec
  // The order of its dimensions in memory, as StateIdentity has it. DDP's buckets have its
  // gradient in that order.
  std::string order = "";
};

// By DDP bucket, the indices of the parameters that lie one behind the other in its flat
// buffer.
using DdpLayout = std::vector<std::vector<size_t>>;

struct DdpPlan {
  // Each bucket lies within one DDP bucket. The buckets are in the order of DDP's, and those
  // within one in the order in which backward fills them, if it makes gradients in DDP's order.
  BucketPlan plan;
  std::vector<std::string> codecs;         // by bucket
  std::vector<size_t> ddp_bucket;          // by bucket: the DDP bucket that it is part of
  std::vector<std::vector<size_t>> parts;  // by DDP bucket: the buckets that it is cut into
  std::vector<size_t> position;    // by parameter: its offset in the buffer of its DDP bucket
  std::vector<BucketPlace> place;  // by parameter
};

// Plans the buckets. A bucket closes once it has bucket_elements; larger tensors stay whole.
// What backward makes last, up to an eighth of that, has buckets of its own, unless no more
// than 1024 elements of a codec lie before it, as nothing hides the time that it takes. Buckets
// of lossless codecs are marked exact. Fails with InvalidArgument for a bad codec, an unknown
// parameter, one that comes twice, or bucket_elements of 0.
Result<DdpPlan> PlanDdp(const DdpLayout& layout, std::span<const DdpParameter> parameters,
                        size_t bucket_elements);

}  // namespace elastiquant
