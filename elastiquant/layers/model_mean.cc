#include "elastiquant/layers/model_mean.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

Result<double> DistanceOf(Communicator* comm, std::span<const float> own,
                          std::span<const float> mean) {
  const double squares = SquaredDistance(own, mean);
  EQ_ASSIGN_OR_RETURN(const auto all, comm->AllGather(std::bit_cast<uint64_t>(squares)));
  double sum = 0;
  for (const uint64_t theirs : all) sum += std::bit_cast<double>(theirs);
  return std::sqrt(sum / comm->world_size());
}

}  // namespace

Result<ModelMean> MeanOfModels(Communicator* comm, std::span<const float> own) {
  std::vector<double> sum(own.size());
  for (int rank = 0; rank < comm->world_size(); ++rank) {
    std::vector<float> theirs(own.begin(), own.end());
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(theirs.data()),
                                   theirs.size() * sizeof(float));
    if (!bytes.empty()) EQ_RETURN_IF_ERROR(comm->Broadcast(rank, bytes));
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += static_cast<double>(theirs[e]);
  }
  ModelMean mean;
  mean.values.resize(own.size());
  for (size_t e = 0; e < sum.size(); ++e) {
    mean.values[e] = static_cast<float>(sum[e] / comm->world_size());
  }
  EQ_ASSIGN_OR_RETURN(mean.distance, DistanceOf(comm, own, mean.values));
  return mean;
}

}  // namespace elastiquant
