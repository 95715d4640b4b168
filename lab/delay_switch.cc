// An Ethernet switch that holds every frame back for a while and loses some: what the kernel's
// netem would do, which not every kernel has. lab/netns.py runs it in place of a bridge.
//
//   delay_switch DELAY JITTER LOSS PORT PORT...
//
// A frame is held back for DELAY to DELAY + JITTER microseconds, uniformly, but never overtakes
// another one. Of a million frames LOSS are lost, which are the same ones in every run.
// Needs CAP_NET_RAW. Says "ready" on stdout when frames are being forwarded.

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = std::array<char, ETH_ALEN>;

// A frame may be one that TCP left to the card to cut up and to checksum; the header before it
// says so, and handed on unchanged it tells the next card.
constexpr size_t kHeaderBytes =
    10;  // virtio_net_hdr, which <linux/virtio_net.h> has for C only
constexpr size_t kMaxBytes = kHeaderBytes + 14 + 65536;
// More than any queue that the ports may have, so that it is those which drop.
constexpr int kSocketBytes = 64 << 20;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "delay_switch: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int OpenPort(const char* name) {
  const unsigned index = if_nametoindex(name);
  if (index == 0) Die(name);
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("cannot open a packet socket");
  const int on = 1;
  packet_mreq all{};
  all.mr_ifindex = static_cast<int>(index);
  all.mr_type = PACKET_MR_PROMISC;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = all.mr_ifindex;
  const auto set = [&](int level, int option, const auto& value) {
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) Die(name);
  };
  set(SOL_PACKET, PACKET_VNET_HDR, on);
  set(SOL_PACKET, PACKET_IGNORE_OUTGOING, on);
  set(SOL_PACKET, PACKET_ADD_MEMBERSHIP, all);
  set(SOL_SOCKET, SO_SNDBUFFORCE, kSocketBytes);
  set(SOL_SOCKET, SO_RCVBUFFORCE, kSocketBytes);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Die(name);
  return fd;
}

struct Air {
  int delay = 0, jitter = 0;  // microseconds
  int loss = 0;               // of a million frames
};

class DelaySwitch {
 public:
  DelaySwitch(const Air& air, const std::vector<const char*>& ports) : air_(air) {
    for (const char* port : ports) ports_.push_back({OpenPort(port), POLLIN, 0});
  }

  [[noreturn]] void Run() {
    for (;;) {
      Wait();
      for (size_t port = 0; port < ports_.size(); ++port) {
        if (ports_[port].revents != 0) Receive(port);
      }
      const auto now = Clock::now();
      for (; !frames_.empty() && frames_.front().due <= now; frames_.pop_front()) {
        Forward(frames_.front());
      }
    }
  }

 private:
  struct Frame {
    Clock::time_point due;
    size_t from;  // port
    std::vector<char> bytes;

    Address At(size_t offset) const {
      Address address;
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(kHeaderBytes + offset), ETH_ALEN,
                  address.begin());
      return address;
    }
    Address destination() const { return At(0); }
    Address source() const { return At(ETH_ALEN); }
  };

  void Wait() {
    timespec left{3600, 0};
    if (!frames_.empty()) {
      const auto until = std::max(frames_.front().due - Clock::now(), Clock::duration(0));
      left.tv_sec = until / std::chrono::seconds(1);
      left.tv_nsec = (until % std::chrono::seconds(1)) / std::chrono::nanoseconds(1);
    }
    if (ppoll(ports_.data(), ports_.size(), &left, nullptr) < 0 && errno != EINTR) Die("poll");
  }

  void Receive(size_t port) {
    for (;;) {
      const ssize_t size = recv(ports_[port].fd, buffer_.data(), buffer_.size(), 0);
      if (size < static_cast<ssize_t>(kHeaderBytes + 2 * ETH_ALEN)) return;
      Frame frame{DueTime(), port, {buffer_.begin(), buffer_.begin() + size}};
      port_of_[frame.source()] = port;
      if (std::uniform_int_distribution(1, 1000000)(random_) <= air_.loss) continue;
      frames_.push_back(std::move(frame));
    }
  }

  Clock::time_point DueTime() {
    const int jitter = std::uniform_int_distribution(0, air_.jitter)(random_);
    const auto due = Clock::now() + std::chrono::microseconds(air_.delay + jitter);
    return frames_.empty() ? due : std::max(due, frames_.back().due);
  }

  // To the port where its addressee was seen, otherwise to all. What a port's queue has no room
  // for is lost, as in any switch.
  void Forward(const Frame& frame) {
    const auto known = port_of_.find(frame.destination());
    for (size_t port = 0; port < ports_.size(); ++port) {
      if (port == frame.from || (known != port_of_.end() && known->second != port)) continue;
      if (send(ports_[port].fd, frame.bytes.data(), frame.bytes.size(), 0) < 0 &&
          errno != ENOBUFS && errno != EAGAIN) {
        Die("cannot forward a frame");
      }
    }
  }

  const Air air_;
  std::mt19937 random_;  // with its default seed
  std::vector<pollfd> ports_;
  std::map<Address, size_t> port_of_;
  std::deque<Frame> frames_;  // in the order that they are due
  std::vector<char> buffer_ = std::vector<char>(kMaxBytes);
};

}  // namespace

// A whole number from 0 to a million, or -1.
int Parse(std::string_view text) {
  int number = -1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end && number <= 1000000 ? number : -1;
}

int main(int argc, char** argv) {
  Air air{-1, -1, -1};
  if (argc >= 6) air = {Parse(argv[1]), Parse(argv[2]), Parse(argv[3])};
  if (air.delay < 0 || air.jitter < 0 || air.loss < 0) {
    std::fprintf(stderr, "usage: delay_switch DELAY JITTER LOSS PORT PORT...\n");
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1000ul);  // ns: the kernel may otherwise add 50 us to every wait
  DelaySwitch delay_switch(air, {argv + 4, argv + argc});
  std::puts("ready");
  std::fflush(stdout);
  delay_switch.Run();
}
