"""elastiquant.compress(): what workers find, and how their jobs end."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path

from launching import forked_jobs, forked_ranks

HERE = Path(__file__).resolve().parent


class TrainingTest(unittest.TestCase):
    def check_passed(
        self, done: subprocess.CompletedProcess[str], workers: int, least: int
    ) -> None:
        """All workers passed the same checks."""
        self.assertEqual(done.returncode, 0, done.stderr)
        passed = [line.split() for line in done.stdout.splitlines()]
        self.assertGreaterEqual(len(passed), least * workers)
        for rank in range(workers):
            names = [name for ok, name, r in passed if ok == "ok" and int(r) == rank]
            self.assertEqual(len(names), len(passed) // workers)

    def check(self, done: subprocess.CompletedProcess[str], workers: int, least: int) -> None:
        """They did, and said nothing else."""
        self.check_passed(done, workers, least)
        # What the switch to fp32 has found depends on the machine, PyTorch warns of a form of
        # DDP that is tried on purpose, and its compiler of what DDP itself does.
        expected = (
            "does not pay",
            "sending compressed again",
            "find_unused_parameters=True was specified",
            "Profiler record function",
        )
        noise = [
            line
            for line in done.stderr.splitlines()
            if line and not any(words in line for words in expected)
        ]
        self.assertEqual(noise, [])

    def test_of_three_workers(self):
        self.check(forked_ranks(3, HERE / "ddp_checks.py"), workers=3, least=70)

    def test_workers_that_go_on_from_different_states_are_told(self):
        self.check_passed(forked_ranks(3, HERE / "ddp_starts.py"), workers=3, least=3)

    def test_goes_on_after_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            for step in ("stop", "resume"):
                done = forked_ranks(2, HERE / "ddp_resume.py", step, folder)
                self.check(done, workers=2, least=6)


class EndTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = forked_jobs(HERE / "ddp_faults.py")

    def test_of_a_worker_that_closes_within_a_step(self):
        first, faulty, last = self.workers["closing_within_a_step"]
        for worker in (first, faulty, last):
            self.assertEqual(worker["code"], 0, worker["output"])
        self.assertIn("was closed", faulty["output"])
        for worker in (first, last):
            self.assertIn("DistBackendError: elastiquant: worker 1", worker["output"])

    def test_of_a_worker_that_raises_within_a_with_statement(self):
        first, faulty, last = self.workers["raising_within_a_with_statement"]
        self.assertIn("ArithmeticError: of my own", faulty["output"])
        for worker in (first, last):
            self.assertEqual(worker["code"], 1, worker["output"])
            self.assertIn("worker 1 stopped: ArithmeticError: of my own", worker["output"])

    def test_is_quiet_when_nothing_is_wrong(self):
        cases = [case for case in self.workers if case.startswith("ending")]
        self.assertEqual(len(cases), 6)
        for case in cases:
            for worker in self.workers[case]:
                with self.subTest(case, rank=worker["rank"]):
                    self.assertEqual((worker["code"], worker["output"]), (0, ""))


if __name__ == "__main__":
    unittest.main()
