#!/usr/bin/env python3
"""Runs one worker per network namespace, each behind a link that tc holds to a rate.

    sudo lab/netns.py --nodes 4 --rate 20mbit --delay 10ms -- \\
        build/release/bin/elastiquant train --model resnet20 --steps 50 --out runs/netns

Every worker gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as under torchrun, and an
Ethernet card of its own, `eth0`, joined to the others by a switch. The switch lives in a
namespace too, so nothing on the host's own network changes and no traffic leaves. Each link is
full duplex: what a worker sends and what it receives are each held to the rate. With --delay
every frame takes so much longer from one worker to another, with --jitter up to so much more,
and with --loss some are lost, which TCP sends again.

Rank 0's output is shown; another worker's only if it fails. The namespaces go away at the end,
on Ctrl-C and on failure; `lab/netns.py --clean-up` removes those of a run that was killed.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

PREFIX = "eqlab"
SUBNET = "10.77.0"
PORT = 29400
FRAME = 1514
DELAY_SWITCH = pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/delay_switch"
# A worker that has failed takes the others with it, once they have had time to say why.
GRACE_SECONDS = 30.0
PR_SET_PDEATHSIG = 1


class LabError(Exception):
    """What stands in the way, in words for the user."""


def ip(*arguments: str) -> str:
    return checked("ip", *arguments)


def checked(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout}")
    return done.stdout


def require_privileges() -> None:
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise LabError(f"{' and '.join(missing)} not found: install iproute2 (make setup does)")
    if os.geteuid() != 0:
        raise LabError(
            "making network namespaces needs root: run this with sudo, or use "
            "`elastiquant train --link RATE`, which paces traffic without privileges"
        )


def parse_rate(text: str) -> int:
    """Bits a second of "20mbit", "1.5gbit" or "800kbit"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k|m|g)bit", text)
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 20mbit or 1gbit")
    return round(float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]])


def parse_delay(text: str) -> int:
    """Microseconds of "10ms", "0.5ms" or "250us"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a delay such as 10ms")
    return round(float(match[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[match[2]])


def parse_loss(text: str) -> float:
    """The part that "1%" is."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if not match or float(match[1]) >= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a loss such as 1%")
    return float(match[1]) / 100


@dataclasses.dataclass
class Worker:
    rank: int
    process: subprocess.Popen
    # Where its output went; None: to ours.
    log: str | None


class Network:
    """N namespaces joined by a switch; a context manager that always takes them down."""

    def __init__(
        self,
        nodes: int,
        bits_per_second: int | None = None,
        delay: int = 0,
        jitter: int = 0,
        loss: float = 0,
    ):
        """The one-way delay and what is added to it at random are in microseconds; the loss is
        the part of all frames."""
        if not 1 <= nodes <= 64:
            raise LabError(f"{nodes} nodes asked for; 1 to 64 can be had")
        self.nodes = nodes
        self.bits_per_second = bits_per_second
        self.delay, self.jitter, self.loss = delay, jitter, loss
        # The maker's process id tells the namespaces of two runs apart.
        self.name = f"{PREFIX}{os.getpid()}"
        self.switch = f"{self.name}-switch"
        self.made: list[str] = []

    def __enter__(self) -> "Network":
        require_privileges()
        try:
            self._make(self.switch)
            for rank in range(self.nodes):
                self._add_node(rank)
            if self.delay or self.jitter or self.loss:
                self._start_delay_switch()
            else:
                self._add_bridge()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for namespace in reversed(self.made):
            remove(namespace)
        self.made.clear()

    def namespace(self, rank: int) -> str:
        return f"{self.name}-{rank}"

    def address(self, rank: int) -> str:
        return f"{SUBNET}.{rank + 1}"

    def _make(self, namespace: str) -> None:
        ip("netns", "add", namespace)
        self.made.append(namespace)

    def _add_bridge(self) -> None:
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for rank in range(self.nodes):
            ip("-n", self.switch, "link", "set", f"port{rank}", "master", "bridge")

    def _start_delay_switch(self) -> None:
        """It ends with its namespace."""
        if not DELAY_SWITCH.exists():
            raise LabError(f"{DELAY_SWITCH} is missing: run make build")
        ports = [f"port{rank}" for rank in range(self.nodes)]
        air = [str(n) for n in (self.delay, self.jitter, round(self.loss * 1e6))]
        enter = ["ip", "netns", "exec", self.switch]
        process = subprocess.Popen(
            [*enter, str(DELAY_SWITCH), *air, *ports],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        if process.stdout.readline() != "ready\n":
            raise LabError("the switch that delays frames did not start")

    def _add_node(self, rank: int) -> None:
        node, port = self.namespace(rank), f"port{rank}"
        self._make(node)
        link = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node)
        ip("-n", self.switch, *link)
        ip("-n", self.switch, "link", "set", port, "up")
        ip("-n", node, "address", "add", f"{self.address(rank)}/24", "dev", "eth0")
        ip("-n", node, "link", "set", "eth0", "up")
        ip("-n", node, "link", "set", "lo", "up")
        # Debian's default, whatever the host has: BBR loses many frames to a token bucket.
        route = (f"{SUBNET}.0/24", "dev", "eth0", "src", self.address(rank))
        ip("-n", node, "route", "replace", *route, "congctl", "cubic")
        if self.bits_per_second is not None:
            self._shape(node, "eth0")
            self._shape(self.switch, port)

    def hold(self, bits_per_second: int) -> None:
        """Holds links that were made without a limit to a rate from now on."""
        self.bits_per_second = bits_per_second
        for rank in range(self.nodes):
            self._shape(self.namespace(rank), "eth0")
            self._shape(self.switch, f"port{rank}")

    def _shape(self, namespace: str, device: str) -> None:
        # TCP hands a card with segmentation offload what it sends in 1 ms, and at least two
        # frames; but up to 64 KiB where round trips take microseconds, as here while nothing
        # queues. Cut up at the token bucket, these would overflow its queue.
        frames = max(self.bits_per_second // 8 // 1000 // FRAME, 2)
        ip("-n", namespace, "link", "set", device, "gso_max_segs", str(min(frames, 43)))
        # A token bucket passes its burst at once after every pause: no more than TCP sends at
        # once keeps the rate and gives little away. The queue holds 100 ms, as a home router's.
        burst = frames * FRAME + 128
        queue = max(self.bits_per_second // 8 // 10, 16 * FRAME)
        shape = ("rate", f"{self.bits_per_second}bit", "burst", str(burst), "limit", str(queue))
        checked("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *shape)

    def run(
        self,
        command: list[str],
        environment: dict[str, str] | None = None,
        quiet: bool = False,
        meanwhile: Callable[[list[Worker]], None] | None = None,
    ) -> None:
        """Runs the command as every rank; raises LabError if one fails. If quiet, rank 0's
        output too is shown only if it fails. Calls meanwhile(workers) every 10 ms."""
        workers: list[Worker] = []
        with tempfile.TemporaryDirectory() as logs:
            try:
                for rank in range(self.nodes):
                    log = None if rank == 0 and not quiet else f"{logs}/rank{rank}.log"
                    workers.append(self._start(rank, command, environment or {}, log))
                wait_for(workers, meanwhile or (lambda _: None))
            finally:
                stop(workers)

    def _start(
        self, rank: int, command: list[str], extra: dict[str, str], log: str | None
    ) -> Worker:
        environment = os.environ | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.nodes),
            "LOCAL_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": str(PORT),
            # The host's name does not lead to an address inside a namespace.
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        environment |= extra
        with open(log, "wb") if log else contextlib.nullcontext() as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace(rank), *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                preexec_fn=die_with_parent,
            )
        return Worker(rank, process, log)


def die_with_parent() -> None:
    """A worker must not outlive a killed lab: it would keep its namespace in use."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_for(workers: list[Worker], meanwhile: Callable[[list[Worker]], None]) -> None:
    deadline = None
    while any(worker.process.poll() is None for worker in workers):
        if deadline is None and any(worker.process.poll() for worker in workers):
            deadline = time.monotonic() + GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            break
        meanwhile(workers)
        time.sleep(0.01)
    failed = [worker for worker in workers if worker.process.poll() not in (0, None)]
    if failed:
        raise LabError("\n".join(describe(worker) for worker in failed))


def describe(worker: Worker) -> str:
    said = ""
    if worker.log:
        with open(worker.log, errors="replace") as log:
            said = "".join("\n    " + line.rstrip() for line in log.readlines()[-10:])
    code = worker.process.returncode
    how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    return f"worker {worker.rank} {how}{said}"


def stop(workers: list[Worker]) -> None:
    running = [worker.process for worker in workers if worker.process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def remove(namespace: str) -> None:
    """Ends what still runs in the namespace and deletes it, its devices with it."""
    pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    for pid in pids.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    done = subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"netns: {namespace} is left behind: {done.stderr.strip()}", file=sys.stderr)


def clean_up() -> int:
    """Removes the namespaces of labs that no longer run; returns how many."""
    names = [line.split()[0] for line in ip("netns", "list").splitlines()]
    owned = ((name, re.match(rf"{PREFIX}(\d+)-", name)) for name in names)
    left = [name for name, match in owned if match and not os.path.exists(f"/proc/{match[1]}")]
    for name in left:
        remove(name)
    return len(left)


def stop_on_signals() -> None:
    """Turns SIGTERM and SIGHUP into an exit that takes the namespaces down, as Ctrl-C does."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4, help="workers, one a namespace (4)")
    parser.add_argument(
        "--rate", type=parse_rate, help="each link's rate, as 20mbit (no limit)"
    )
    parser.add_argument(
        "--delay", type=parse_delay, default=0, help="between any two workers, as 10ms (none)"
    )
    parser.add_argument("--jitter", type=parse_delay, default=0, help="up to so much more")
    parser.add_argument("--loss", type=parse_loss, default=0, help="of frames, as 1%% (none)")
    parser.add_argument("--clean-up", action="store_true", help="remove what killed runs left")
    parser.add_argument("command", nargs="*", help="what each worker runs, after --")
    arguments = parser.parse_args()
    if not arguments.clean_up and not arguments.command:
        parser.error("no command given: put it after --")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    stop_on_signals()
    try:
        if arguments.clean_up:
            require_privileges()
            print(f"removed {clean_up()} namespaces")
            return
        a = arguments
        with Network(a.nodes, a.rate, a.delay, a.jitter, a.loss) as network:
            network.run(arguments.command)
    except LabError as error:
        sys.exit(f"netns: {error}")
    except KeyboardInterrupt:
        sys.exit("netns: stopped; the namespaces are gone")


if __name__ == "__main__":
    main()
