"""When links become slow, with workers and a network that only look so."""

import pathlib
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import late_link
import namespaces


class LateLinkTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.metrics = pathlib.Path(holder.name) / "metrics.jsonl"
        self.network = mock.Mock(spec=namespaces.Network)
        self.late = late_link.LateLink(self.network, 5_000_000, self.metrics)
        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.workers = [namespaces.Worker(0, process, None)]

    def is_stopped(self, expected: bool) -> bool:
        """Whether the worker stands still, once that is as expected, or after 5 s."""
        stat = pathlib.Path(f"/proc/{self.workers[0].process.pid}/stat")
        for _ in range(500):
            found = stat.read_text().rpartition(")")[2].split()[0] == "T"
            if found == expected:
                break
            time.sleep(0.01)
        return found

    def test_links_become_slow_once_after_the_first_step(self):
        seen = []
        self.network.hold.side_effect = lambda _: seen.append(self.is_stopped(True))
        self.late(self.workers)
        self.metrics.write_text("")
        self.late(self.workers)
        self.metrics.write_text('{"step"')  # a line that is being written
        self.late(self.workers)
        self.network.hold.assert_not_called()
        self.metrics.write_text('{"step": 1}\n')
        self.late(self.workers)
        self.late(self.workers)
        self.network.hold.assert_called_once_with(5_000_000)
        self.assertEqual(seen, [True])  # meanwhile the worker stands still
        self.assertFalse(self.is_stopped(False))
        self.late.check()

    def test_more_than_a_step_is_too_late(self):
        self.metrics.write_text('{"step": 1}\n{"step": 2}\n')
        self.late(self.workers)
        with self.assertRaisesRegex(namespaces.LabError, "slow after 2 steps"):
            self.late.check()

    def test_never_is_too_late(self):
        with self.assertRaisesRegex(namespaces.LabError, "slow after all steps"):
            self.late.check()

    def test_a_network_that_fails_leaves_nobody_stopped(self):
        self.metrics.write_text('{"step": 1}\n')
        self.network.hold.side_effect = namespaces.LabError("no tc")
        with self.assertRaisesRegex(namespaces.LabError, "no tc"):
            self.late(self.workers)
        self.assertFalse(self.is_stopped(False))


if __name__ == "__main__":
    unittest.main()
