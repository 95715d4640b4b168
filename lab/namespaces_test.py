"""Links as they were asked for. Skipped without root, `ip`, `tc` and the switch."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import link_check
import namespaces
import varying

SECONDS = 1.0


def can_make_namespaces() -> bool:
    try:
        namespaces.require_privileges()
        name = f"{namespaces.PREFIX}{os.getpid()}-test"  # as netns.py --clean-up finds it
        namespaces.ip("netns", "add", name)
        namespaces.ip("netns", "delete", name)
    except namespaces.LabError:
        return False
    return namespaces.SWITCH.exists()


def hear_signals() -> None:
    """Also where the tests run in the background, which ignores some."""
    for number in namespaces.ENDING:
        signal.signal(number, signal.SIG_DFL)


class ArgumentsTest(unittest.TestCase):
    def test_networks_that_cannot_be_are_refused(self):
        air = namespaces.Air(54_000_000)
        for options, words in (
            ({"nodes": 0}, "1 to 64"),
            ({"nodes": 3, "bits_per_second": [1, 2]}, "2 rates given for 3 nodes"),
            ({"nodes": 3, "bits_per_second": 1, "air": air}, "have no links"),
            ({"nodes": 3, "trace": Path("x")}, "a rate that changes"),
        ):
            with self.subTest(words), self.assertRaisesRegex(namespaces.LabError, words):
                namespaces.Network(**options)

    def test_a_link_is_a_rate_and_a_delay(self):
        self.assertEqual(namespaces.parse_link("20mbit,10ms"), (20_000_000, 10_000))
        self.assertEqual(namespaces.parse_link("1.5gbit"), (1_500_000_000, 0))
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "'soon' is not a delay"):
            namespaces.parse_link("20mbit,soon")
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "is not a rate"):
            namespaces.parse_link("0.0001kbit")  # would be none after rounding

    def test_commands_need_what_they_are_about(self):
        program = Path(__file__).parent / "netns.py"
        vary = ["--vary", "20mbit@1s", "x"]
        for options, words in (
            ([], "no command"),
            (["--overhead", "1ms", "x"], "--air"),
            (["--rate", "20mbit", *vary], "leave out --rate"),
            (["--rates", "20mbit,5mbit", *vary], "leave out --rate"),
            (["--check", "--", "true"], "in place of a command"),
            (["--delay", "3000s", "x"], "1us to 1000s"),
            (["--loss", "0.00001%", "x"], "0.0001% to"),
        ):
            done = subprocess.run(
                [sys.executable, str(program), *options], capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


def written(text: str, folder: str) -> Path:
    """A trace of rates, as lab_switch reads it."""
    path = Path(folder) / "trace.txt"
    varying.write(varying.parse(text), path)
    return path


class UncheckedTest(unittest.TestCase):
    def unchecked(self, trace: str = "", **options) -> str:
        with tempfile.TemporaryDirectory() as folder:
            of = {"trace": written(trace, folder)} if trace else {}
            network = namespaces.Network(nodes=2, **options, **of)
            return "\n".join(link_check.unchecked(network))

    def test_what_is_compared_needs_no_words(self):
        for options in (
            {"bits_per_second": 10_000_000},
            {"bits_per_second": 10_000_000, "loss": 0.01},
            {"bits_per_second": 20_000_000, "trace": "20mbit@10s,5mbit@5s"},
            {"air": namespaces.Air(24_000_000, crossings=2)},
        ):
            with self.subTest(options):
                self.assertEqual(self.unchecked(**options), "")

    def test_what_is_not_compared_is_told(self):
        walk = "walk:low=5mbit,high=20mbit,every=1s"
        slow, fast = {"bits_per_second": 20_000_000}, {"bits_per_second": 10**9}
        for words, options in (
            ("there is no limit", {}),
            ("at most 300 Mbit/s", {"loss": 0.02, **fast}),
            ("at most 300 Mbit/s", {"trace": "1gbit@1s", **fast}),
            ("600 seconds but for 30", {"trace": walk, **slow}),
            ("how the air is shared", {"air": namespaces.Air(10**7, crossings=2), "loss": 0.1}),
            ("that any frame is lost", {"loss": 0.001, **slow}),
        ):
            with self.subTest(words):
                self.assertIn(words, self.unchecked(**options))

    def test_a_loss_cannot_be_told_from_an_outage(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "outage.txt"
            varying.write([(1, 10**7), (1, 0)], path)
            network = namespaces.Network(nodes=2, bits_per_second=10**7, trace=path, loss=0.1)
            self.assertIn("in an outage datagrams", "".join(link_check.unchecked(network)))


class EndingTest(unittest.TestCase):
    def test_a_switch_that_has_not_entered_its_namespace_is_ended(self):
        network = namespaces.Network(nodes=2, delay=1)
        network.switching = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
        switching = network.switching
        self.addCleanup(switching.kill)
        network.__exit__()
        self.assertEqual(switching.poll(), -signal.SIGKILL)

    def test_a_command_that_does_not_end_is_given_up(self):
        with (
            mock.patch.object(namespaces, "END_SECONDS", 0.1),
            self.assertRaisesRegex(namespaces.LabError, "`sleep 60` has not ended in 0.1 s"),
        ):
            namespaces.checked("sleep", "60")

    def test_a_child_hears_signals_though_it_was_started_while_they_were_held_back(self):
        with namespaces.undisturbed():
            child = subprocess.Popen(["sleep", "60"], preexec_fn=namespaces.be_child)
        self.addCleanup(child.kill)
        child.terminate()
        self.assertEqual(child.wait(timeout=50), -signal.SIGTERM)


@unittest.skipUnless(can_make_namespaces(), "needs root, network namespaces and `make build`")
class SignalsTest(unittest.TestCase):
    def namespaces_of(self, process):
        return namespaces.ip("netns", "list").count(f"{namespaces.PREFIX}{process.pid}-")

    def started(self):
        """With a namespace, and on its way to more."""
        program = Path(__file__).parent / "netns.py"
        command = [sys.executable, str(program), "--nodes", "5", "--delay", "1ms"]
        lab = subprocess.Popen(
            [*command, "--", "sleep", "60"],
            stderr=subprocess.DEVNULL,
            preexec_fn=hear_signals,
        )
        self.addCleanup(lab.kill)
        while lab.poll() is None and not self.namespaces_of(lab):
            time.sleep(0.01)
        return lab

    def test_whenever_it_is_ended_no_namespace_is_left(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            for seconds in (0, 0.1, 0.5):
                with self.subTest(signal=number, seconds=seconds):
                    lab = self.started()
                    time.sleep(seconds)
                    lab.send_signal(number)
                    time.sleep(0.02)  # amid what the first has begun
                    lab.send_signal(number)
                    self.assertNotEqual(lab.wait(timeout=30), 0)
                    self.assertEqual(self.namespaces_of(lab), 0)


@unittest.skipUnless(can_make_namespaces(), "needs root, network namespaces and `make build`")
class LinksTest(unittest.TestCase):
    def setUp(self):
        for name, value in (("SECONDS", SECONDS), ("ECHOES", 100)):
            patch = mock.patch.object(link_check, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def checked(self, **options):
        """A busy machine may make links slower than asked for, but never faster."""
        with namespaces.Network(**options) as network:
            checks = link_check.check(network)
        said = link_check.table(checks)
        for c in checks:
            if c.unit == "Mbit/s" and c.asked is not None:
                self.assertGreater(c.seen, 0.3 * c.asked, said)
                self.assertLess(c.seen, 1.1 * c.asked, said)
            elif c.what == "shortest round trip":
                self.assertGreaterEqual(c.seen, c.asked, said)
                self.assertLess(c.seen, c.asked + 100, said)
            elif c.unit == "%":
                self.assertTrue(c.holds, said)
        return checks

    def test_each_link_has_its_rate(self):
        checks = self.checked(nodes=3, bits_per_second=[20_000_000, 20_000_000, 5_000_000])
        self.assertEqual([c.asked for c in checks[3:]], [20, 5, 5])

    def test_the_air_is_shared(self):
        checks = self.checked(
            nodes=4, air=namespaces.Air(24_000_000, overhead=100, crossings=2), delay=2000
        )
        # An access point sends all again, and each frame has its overhead.
        self.assertAlmostEqual(checks[-1].asked, 12 / (1 + 24 * 100 / 8 / 1514), places=3)

    def test_frames_are_lost_and_late_as_asked(self):
        checks = self.checked(
            nodes=2, bits_per_second=10_000_000, delay=3000, jitter=4000, loss=0.05
        )
        self.assertAlmostEqual(checks[-1].asked, 9.5)

    def test_tcp_loses_frames_one_by_one(self):
        send = "import socket; s = socket.create_connection(('{}', 9)); s.sendall(bytes(10**6))"
        take = "import socket; s = socket.create_server(('', 9)).accept()[0]\n"
        take += "while s.recv(65536): pass"
        for rate in (None, 100_000_000):
            with (
                self.subTest(rate=rate),
                namespaces.Network(2, rate, delay=1000, loss=0.001) as network,
            ):
                enter = ["ip", "netns", "exec"]
                to = subprocess.Popen(
                    [*enter, network.namespace(1), sys.executable, "-c", take]
                )
                self.addCleanup(to.kill)
                words = [*enter, network.namespace(0), sys.executable, "-c"]
                code = send.format(network.address(1))
                while subprocess.run([*words, code], stderr=subprocess.DEVNULL).returncode:
                    time.sleep(0.05)  # until the other listens
                self.assertEqual(to.wait(timeout=60), 0)
                shown = ["ip", "-n", network.namespace(0), "-s", "-j", "link", "show", "eth0"]
                told = json.loads(subprocess.check_output(shown))[0]["stats64"]["tx"]
                self.assertLess(told["bytes"] / told["packets"], 1515)

    def test_rates_that_change_are_measured(self):
        trace = self.trace("20mbit@700ms,5mbit@300ms")
        checks = self.checked(nodes=2, bits_per_second=20_000_000, trace=trace)
        self.assertAlmostEqual(checks[-1].asked, 15.5, delta=3)
        air = namespaces.Air(20_000_000)
        self.assertIsNotNone(self.checked(nodes=2, air=air, trace=trace)[-1].asked)

    def test_a_network_that_is_another_is_found_out(self):
        trace, other = self.trace("20mbit@500ms,5mbit@500ms"), self.trace("20mbit@1s")
        options = {"nodes": 2, "bits_per_second": 20_000_000, "trace": trace}
        with namespaces.Network(**options) as network:
            network.trace, network.loss = other, 0.1
            checks = link_check.check(network)
        failed = {c.what for c in checks if not c.holds}
        ways = {f"worker {a} to {b}, beside the others" for a, b in ((0, 1), (1, 0))}
        self.assertLessEqual({"datagrams lost", *ways}, failed, link_check.table(checks))

    def trace(self, text):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        return written(text, holder.name)


if __name__ == "__main__":
    unittest.main()
