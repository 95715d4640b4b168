// Point-to-point messages over c10d's ProcessGroupGloo, with errors as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// A posted message. Wait() may be called once; Abort() makes it return, from any thread.
class GlooWork {
 public:
  virtual ~GlooWork() = default;
  virtual Status Wait() = 0;
  virtual void Abort() = 0;
};

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  std::string store_host;
  uint16_t store_port = 0;
  std::string store_prefix;
  std::chrono::milliseconds connect_timeout{};
  bool one_machine = false;  // all workers are on this one
};

class GlooGroup {
 public:
  // Connects all pairs; every rank of the job must call it. In gloo_group.cc, alone of the
  // folder, for it needs Gloo's headers; the Python module has another.
  static Result<std::unique_ptr<GlooGroup>> Connect(const GlooOptions& options);
  virtual ~GlooGroup() = default;

  // The bytes, at least one, must stay valid until the work is done or destroyed. A receive may
  // be longer than the message. Posting on a broken connection gives the error.
  virtual Result<std::unique_ptr<GlooWork>> Send(int to, uint32_t tag,
                                                 std::span<const uint8_t> bytes) = 0;
  virtual Result<std::unique_ptr<GlooWork>> Receive(int from, uint32_t tag,
                                                    std::span<uint8_t> bytes) = 0;
};

}  // namespace elastiquant
