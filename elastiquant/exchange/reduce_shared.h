// What all buckets of a reduction share: the communicator, and the working memory of each
// stage.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "elastiquant/base/workspace.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/exchange/reduce_tally.h"
#include "elastiquant/exchange/scratch.h"
#include "elastiquant/exchange/send_queue.h"
#include "elastiquant/net/buffer_pool.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// The memory that a stage needs to measure a frame of its own.
struct Measurement {
  std::vector<float> input, error;
};

// What the buckets of a ReduceStages share. Each stage has a thread of its own, which alone
// uses what stands under the stage's name.
struct ReduceShared {
  ReduceShared(Communicator* communicator, const ReducerOptions& reducer_options,
               BufferPool* pool)
      : options(reducer_options),
        rank(communicator->rank()),
        names(communicator->names()),
        world_size(communicator->world_size()),
        kept_frames(pool),
        announce(communicator, options.threads),
        encode(communicator, options.threads),
        reduce(communicator, options.threads),
        gather_work(options.threads) {}

  const ReducerOptions options;
  const int rank;
  const WorkerNames names;  // in errors and notices
  const int world_size;
  BufferPool* const kept_frames;      // for own frames that Reduce adds with the others'
  std::atomic<size_t> kept_bytes{0};  // how many bytes those have
  uint64_t step = 0;
  bool measuring = false;  // whether errors are measured in this step
  ReduceTally tally;

  // The memory and the messages of a stage that sends.
  struct Stage {
    Stage(Communicator* comm, int threads) : sends(comm), work(threads) {}
    SendQueue sends;
    Workspace work;
    Scratch<uint8_t> frame;
    Measurement measured;
  };
  Stage announce, encode, reduce;
  Scratch<uint8_t> encode_part;   // of Encode: a part of a frame
  Scratch<float> encode_decoded;  // of Encode: what a sparse frame decodes to
  Scratch<float> reduce_sum;      // of Reduce
  Workspace gather_work;
};

}  // namespace elastiquant
