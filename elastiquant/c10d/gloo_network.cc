#include "elastiquant/c10d/gloo_network.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "elastiquant/c10d/backend_transport.h"
#include "elastiquant/c10d/tcp_store_network.h"
#include "elastiquant/c10d/torch_error.h"

namespace elastiquant {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
// Of a network that is kept for documentation: the way there is the way to anywhere.
constexpr char kElsewhere[] = "192.0.2.1";

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// This machine's address on the way to `host`, of this family.
std::string LocalAddressTowards(const std::string& host, uint16_t port, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  std::string address;
  for (addrinfo* a = found; a != nullptr && address.empty(); a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM, 0);
    sockaddr_storage local{};
    socklen_t size = sizeof(local);
    // A datagram socket's connect() sends nothing: it only chooses the route.
    if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0) {
      char name[NI_MAXHOST];
      if (getnameinfo(reinterpret_cast<sockaddr*>(&local), size, name, sizeof(name), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
        address = name;
      }
    }
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return address;
}

// One that the other workers can reach. The machine's name, which Gloo would look up, often
// stands for the loopback address; so may the store's, on its own machine. Gloo connects only
// addresses of one family, and some machines may know the store's name by both, so that IPv6
// is used only where there is no IPv4.
std::string OwnAddress(const TransportOptions& options) {
  if (options.one_machine) return kLoopback;
  for (const std::string& host : {options.store_host, std::string(kElsewhere)}) {
    std::string address = LocalAddressTowards(host, options.store_port, AF_INET);
    if (address.empty()) address = LocalAddressTowards(host, options.store_port, AF_INET6);
    if (!address.empty() && !IsLoopback(address)) return address;
  }
  throw std::runtime_error(
      "this machine has no address that the other workers' machines can reach: name its "
      "network "
      "interface in GLOO_SOCKET_IFNAME");
}

// The first of those in the variable that PyTorch's own programs obey, or "".
std::string NamedInterface() {
  const char* const names = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string_view list = names == nullptr ? "" : names;
  return std::string(list.substr(0, list.find(',')));
}

std::shared_ptr<gloo::transport::Device> MakeDevice(const TransportOptions& options) {
  if (const std::string interface = NamedInterface(); !interface.empty()) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  return c10d::ProcessGroupGloo::createDeviceForHostname(OwnAddress(options));
}

class GlooNetwork final : public TcpStoreNetwork {
 public:
  Result<std::unique_ptr<Transport>> Connect(const TransportOptions& options) override;
};

Result<std::unique_ptr<Transport>> GlooNetwork::Connect(const TransportOptions& options) {
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = options.store_port;
    store_options.timeout = options.connect_timeout;
    store_options.waitWorkers = false;
    auto store = c10::make_intrusive<c10d::PrefixStore>(
        options.store_prefix,
        c10::make_intrusive<c10d::TCPStore>(options.store_host, store_options));

    auto gloo = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
    gloo->threads = 1;  // they run c10d's collectives, of which we use none
    gloo->devices.push_back(MakeDevice(options));
    return MakeBackendTransport(c10::make_intrusive<c10d::ProcessGroupGloo>(
        store, options.rank, options.world_size, gloo));
  } catch (const std::exception& e) {
    return Unavailable("connecting the workers failed: " + Words(e));
  }
}

}  // namespace

std::shared_ptr<Network> MakeGlooNetwork() { return std::make_shared<GlooNetwork>(); }

}  // namespace elastiquant
