// A worker for liveness_test, which starts several and kills, stops or fails one.
// collective_worker PORT RANK WORLD_SIZE TIMEOUT_MS forever|finish|fail
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/c10d/gloo_network.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {
namespace {

Status Run(const CommunicatorOptions& options, const std::string& mode) {
  EQ_ASSIGN_OR_RETURN(auto comm, Communicator::Connect(options));
  const int next = (options.rank + 1) % options.world_size;
  const int previous = (options.rank + options.world_size - 1) % options.world_size;
  const std::vector<uint8_t> message(4000);
  for (uint64_t step = 0; mode == "forever" || step < 5; ++step) {
    const auto incoming = comm->Receive(previous, 0, message.size());
    const auto outgoing = comm->Send(next, 0, message);
    EQ_RETURN_IF_ERROR(incoming->Wait().status());
    EQ_RETURN_IF_ERROR(outgoing->Wait().status());
    if (step == 3) {
      std::puts("stepping");
      std::fflush(stdout);
    }
    if (mode == "fail" && step == 3 && options.rank == 1) {
      const Status why = IoError("the data ran out");
      comm->Abort(why);
      return why;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // The workers need not end together: the last one has work left of its own.
  if (mode == "finish" && options.rank == options.world_size - 1) {
    std::this_thread::sleep_for(2 * options.timeout);
  }
  return {};
}

int Main(char** argv) {
  CommunicatorOptions options;
  options.network = MakeGlooNetwork();
  options.store_port = static_cast<uint16_t>(std::atoi(argv[1]));
  options.rank = std::atoi(argv[2]);
  options.world_size = std::atoi(argv[3]);
  options.timeout = std::chrono::milliseconds(std::atoi(argv[4]));
  options.connect_timeout = std::chrono::minutes(1);  // the machine may be busy
  const Status status = Run(options, argv[5]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) { return argc == 6 ? elastiquant::Main(argv) : 2; }
