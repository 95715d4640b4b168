// Which parameter's gradient lies where: parameters in reverse order (that in which backward
// completes them) grouped into flat buckets, small ones apart so that they can stay exact.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

struct ParameterShape {
  std::string name;  // "layer1.0.conv1.weight"
  size_t elements = 0;
  int64_t dimensions = 0;
  size_t rows = 1;    // TensorShape::rows
  size_t kernel = 1;  // TensorShape::kernel
};

// Of a parameter with these dimensions.
ParameterShape MakeParameterShape(std::string name, std::span<const size_t> dimensions);

struct BucketSlot {
  size_t parameter = 0;  // its index in the list that was planned
  size_t offset = 0;     // of its first element in the bucket
};

struct PlannedBucket {
  std::vector<BucketSlot> slots;
  size_t elements = 0;
  bool exact = false;  // travels as fp32 whatever the codec
  std::string name;    // the layers it holds, for messages
};

// Where a few extra values lie.
struct BucketPlace {
  size_t bucket = 0;
  size_t offset = 0;
};

struct BucketPlan {
  std::vector<PlannedBucket> buckets;  // in the order in which backward fills them
  BucketPlace scalars;                 // `scalars` extra values, in an exact bucket
};

struct BucketPlanOptions {
  size_t bucket_elements =
      65536;  // a bucket closes once it has this many; larger tensors stay whole
  // What stays exact: "none", or a comma-separated list of "1d" (biases and norms) and of name
  // patterns as in a shell ("fc.*").
  std::string exact = "1d";
  // Values to be averaged beside the gradients: the loss, say. They make an exact bucket of
  // their own where there is no other.
  size_t scalars = 0;
};

// Errors: InvalidArgument for a bucket size of 0, no parameters, or a pattern that matches
// none.
Result<BucketPlan> PlanBuckets(std::span<const ParameterShape> parameters,
                               const BucketPlanOptions& options);

// "layer1.0.conv1.weight ... conv1.weight, 7 tensors"
std::string NameOfBucket(const PlannedBucket& bucket,
                         std::span<const ParameterShape> parameters);

// The tensors of a bucket, in its order, as codecs of matrices take them: the first dimension
// against all others; those of less than two dimensions are one row.
std::vector<TensorShape> TensorsOf(const PlannedBucket& bucket,
                                   std::span<const ParameterShape> parameters);

}  // namespace elastiquant
