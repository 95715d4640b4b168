// Plans which parameter's gradient lies where. Parameters are grouped into flat buckets in
// reverse order, in which backward completes them; small ones are kept apart so that they can
// stay exact.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

// What a plan must know of a parameter.
struct ParameterShape {
  std::string name;  // "layer1.0.conv1.weight"
  size_t elements = 0;
  int64_t dimensions = 0;
  size_t rows = 1;    // TensorShape::rows
  size_t kernel = 1;  // TensorShape::kernel
};

// Returns the shape of a parameter with these dimensions.
ParameterShape MakeParameterShape(std::string name, std::span<const size_t> dimensions);

// The place of one parameter in its bucket.
struct BucketSlot {
  size_t parameter = 0;  // its index in the list that was planned
  size_t offset = 0;     // where its first element lies in the bucket
};

struct PlannedBucket {
  std::vector<BucketSlot> slots;
  size_t elements = 0;
  bool exact = false;  // whether it travels as fp32 whatever the codec
  std::string name;    // the layers it holds, for messages
};

// Where a few extra values lie.
struct BucketPlace {
  size_t bucket = 0;
  size_t offset = 0;
};

struct BucketPlan {
  std::vector<PlannedBucket> buckets;  // in the order in which backward fills them
  BucketPlace scalars;                 // where `scalars` extra values lie, in an exact bucket
};

struct BucketPlanOptions {
  size_t bucket_elements =
      65536;  // a bucket closes once it has this many; larger tensors stay whole
  // What stays exact: "none", or a comma-separated list of "1d" (biases and norms) and of name
  // patterns as in a shell ("fc.*").
  std::string exact = "1d";
  // By parameter, the group that it is in: buckets hold parameters of one group only. None: all
  // are in one.
  std::vector<size_t> groups = {};
  // The number of values to be averaged beside the gradients, such as the loss. They make an
  // exact bucket of their own if there is no other.
  size_t scalars = 0;
};

// Plans the buckets. Fails with InvalidArgument for a bucket size of 0, no parameters, or a
// pattern that matches no parameter.
Result<BucketPlan> PlanBuckets(std::span<const ParameterShape> parameters,
                               const BucketPlanOptions& options);

// Returns text such as "layer1.0.conv1.weight ... conv1.weight, 7 tensors".
std::string NameOfBucket(const PlannedBucket& bucket,
                         std::span<const ParameterShape> parameters);

// Returns the tensors of a bucket, in its order, as codecs of matrices take them: the rows are
// the first dimension and the columns all others; those of less than two dimensions are one
// row.
std::vector<TensorShape> TensorsOf(const PlannedBucket& bucket,
                                   std::span<const ParameterShape> parameters);

}  // namespace elastiquant
