"""Network namespaces for workers, joined by a switch: what scripts of the lab run in.

Needs root, `ip` and `tc`. Nothing outside the namespaces is touched.
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
from collections.abc import Callable, Iterator

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))

from elastiquant_testbed import units

PREFIX = "eqlab"
SUBNET = "10.77.0"
PORT = 29400
FRAME = 1514
SWITCH = pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/lab_switch"
# A worker that has failed takes the others with it, once they have had time to say why.
GRACE_SECONDS = 30.0
# No command of `ip` and `tc`, and nothing that was killed, is waited for any longer: signals
# may be held back meanwhile.
END_SECONDS = 60.0
PR_SET_PDEATHSIG = 1
# What ends a lab, which then takes its namespaces down.
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class LabError(Exception):
    """What stands in the way, in words for the user."""


def ip(*arguments: str) -> str:
    return checked("ip", *arguments)


def checked(*command: str) -> str:
    words = f"`{' '.join(command)}`"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=END_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{words} has not ended in {END_SECONDS:g} s") from error
    if done.returncode != 0:
        raise LabError(f"{words} failed: {done.stderr.strip() or done.stdout}")
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
    if (rate := units.rate(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 20mbit or 1gbit")
    return rate


def parse_delay(text: str) -> int:
    """Microseconds of "10ms", "0.5ms" or "250us"."""
    if (delay := units.delay(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {units.DELAYS}")
    return delay


def parse_link(text: str) -> tuple[int, int]:
    """Bits a second, and microseconds of one-way delay, of "20mbit,10ms" or "20mbit"."""
    rate, _, delay = text.partition(",")
    return parse_rate(rate), parse_delay(delay or "0ms")


def parse_loss(text: str) -> float:
    """The part that "1%" is."""
    if (loss := units.loss(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {units.LOSSES}")
    return loss


@dataclasses.dataclass
class Worker:
    rank: int
    process: subprocess.Popen
    # Where its output went; None: to ours.
    log: str | None


@dataclasses.dataclass(frozen=True)
class Air:
    """One half-duplex medium for all, as lab/medium.h has it."""

    bits_per_second: int
    overhead: int = 0  # microseconds of a frame, beside its bytes
    crossings: int = 1  # 2: by way of an access point


class Network:
    """N namespaces joined by a switch; a context manager that always takes them down."""

    def __init__(
        self,
        nodes: int,
        bits_per_second: int | list[int] | None = None,
        delay: int = 0,
        jitter: int = 0,
        loss: float = 0,
        air: Air | None = None,
        trace: pathlib.Path | None = None,
    ):
        """The rate is of all links, or there is one for each. The one-way delay and what is
        added to it at random are in microseconds; the loss is the part of all frames. A trace
        (lab/varying.py) is what the rate of the air, or of all links, is from time to time; the
        rate then is the highest."""
        if not 1 <= nodes <= 64:
            raise LabError(f"{nodes} nodes asked for; 1 to 64 can be had")
        if isinstance(bits_per_second, list) and len(bits_per_second) != nodes:
            raise LabError(f"{len(bits_per_second)} rates given for {nodes} nodes")
        if air and bits_per_second is not None:
            raise LabError("workers that share the air have no links: leave out their rate")
        if trace and not air and not isinstance(bits_per_second, int):
            raise LabError("a rate that changes is that of the air, or one for all links")
        self.nodes = nodes
        self.bits_per_second = bits_per_second
        self.delay, self.jitter, self.loss = delay, jitter, loss
        self.air, self.trace = air, trace
        # The maker's process id tells the namespaces of two runs apart.
        self.name = f"{PREFIX}{os.getpid()}"
        self.switch = f"{self.name}-switch"
        self.made: list[str] = []
        self.switching: subprocess.Popen | None = None
        self.switched_at = 0.0  # when the trace of rates began, as time.time() has it

    def __enter__(self) -> "Network":
        require_privileges()
        try:
            self._make(self.switch)
            for rank in range(self.nodes):
                self._add_node(rank)
            if self.delay or self.jitter or self.loss or self.air or self.trace:
                self._start_switch()
            else:
                self._add_bridge()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            if self.switching:  # before all, as it may be about to enter its namespace
                kill(self.switching)
                self.switching.stdout.close()
                self.switching = None
            for namespace in self.made:
                remove(namespace)
            self.made.clear()

    def namespace(self, rank: int) -> str:
        return f"{self.name}-{rank}"

    def address(self, rank: int) -> str:
        return f"{SUBNET}.{rank + 1}"

    def _make(self, namespace: str) -> None:
        with undisturbed():
            ip("netns", "add", namespace)
            self.made.append(namespace)

    def _add_bridge(self) -> None:
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for rank in range(self.nodes):
            ip("-n", self.switch, "link", "set", f"port{rank}", "master", "bridge")

    def _start_switch(self) -> None:
        if not SWITCH.exists():
            raise LabError(f"{SWITCH.name} is not built: run make build")
        words = ["--delay", self.delay, "--jitter", self.jitter]
        words += ["--loss", round(self.loss * 1e6)]
        if self.air:
            words += ["--air", f"@{self.trace}" if self.trace else self.air.bits_per_second]
            words += ["--overhead", self.air.overhead, "--crossings", self.air.crossings]
        elif self.trace:
            words += ["--link", f"@{self.trace}"]
        words += [f"port{rank}" for rank in range(self.nodes)]
        enter = ["ip", "netns", "exec", self.switch]
        with undisturbed():  # or nobody would know of it
            self.switching = subprocess.Popen(
                [*enter, str(SWITCH), *map(str, words)],
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=be_child,
            )
        if self.switching.stdout.readline() != "ready\n":
            raise LabError("the switch that holds frames back did not start")
        self.switched_at = time.time()

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
        if self.air or self.trace:
            fastest = self.air.bits_per_second if self.air else self.bits_per_second
            cut(node, "eth0", frames_at_once(fastest))
        elif self.bits_per_second is not None:
            self._shape(rank)
        if self.loss:
            cut(node, "eth0", 1)  # each frame is lost by itself, not all that TCP sends at once

    def hold(self, bits_per_second: int) -> None:
        """Holds links that were made without a limit to a rate from now on."""
        self.bits_per_second = bits_per_second
        for rank in range(self.nodes):
            self._shape(rank)

    def _shape(self, rank: int) -> None:
        rate = self.bits_per_second
        if isinstance(rate, list):
            rate = rate[rank]
        for namespace, device in ((self.namespace(rank), "eth0"), (self.switch, f"port{rank}")):
            shape(namespace, device, rate)

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
                    with undisturbed():  # or nobody would know of it
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
                preexec_fn=be_child,
            )
        return Worker(rank, process, log)


def frames_at_once(bits_per_second: int) -> int:
    """What TCP sends at once at this rate: what takes 1 ms, and at least two frames."""
    return max(bits_per_second // 8 // 1000 // FRAME, 2)


def cut(namespace: str, device: str, frames: int) -> None:
    """TCP hands a card with segmentation offload what it sends in 1 ms; but up to 64 KiB where
    round trips take microseconds, as here while nothing queues. Cut up at a token bucket, these
    would overflow its queue; on shared air they would keep it from all others."""
    ip("-n", namespace, "link", "set", device, "gso_max_segs", str(min(frames, 43)))


def shape(namespace: str, device: str, bits_per_second: int) -> None:
    """Holds what leaves by the device to the rate."""
    frames = frames_at_once(bits_per_second)
    cut(namespace, device, frames)
    # A token bucket passes its burst at once after every pause: no more than TCP sends at
    # once keeps the rate and gives little away. The queue holds 100 ms, as a home router's.
    burst = frames * FRAME + 128
    queue = max(bits_per_second // 8 // 10, 16 * FRAME)
    rule = ("rate", f"{bits_per_second}bit", "burst", str(burst), "limit", str(queue))
    checked("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *rule)


def be_child() -> None:
    """A child must not outlive a killed lab: it would keep its namespace in use. It hears the
    signals that are held back while it is started."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


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
            kill(process)


def kill(process: subprocess.Popen) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_SECONDS)


def remove(namespace: str) -> None:
    """Ends what still runs in the namespace and deletes it, its devices with it."""
    with contextlib.suppress(LabError):
        for pid in ip("netns", "pids", namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    try:
        ip("netns", "delete", namespace)
    except LabError as error:
        print(f"netns: {namespace} is left behind: {error}", file=sys.stderr)


def clean_up() -> int:
    """Removes the namespaces of labs that no longer run; returns how many."""
    names = [line.split()[0] for line in ip("netns", "list").splitlines()]
    owned = ((name, re.match(rf"{PREFIX}(\d+)-", name)) for name in names)
    left = [name for name, match in owned if match and not os.path.exists(f"/proc/{match[1]}")]
    for name in left:
        remove(name)
    return len(left)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Holds signals back: one that came amid this would leave namespaces behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_on_signals() -> None:
    """Turns SIGTERM and SIGHUP into an exit that takes the namespaces down, as Ctrl-C does."""

    def leave(number: int, _: object) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)  # no second one interrupts that
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
