"""elastiquant.DiLoCo and LocalSGD, under torchrun and with workers that die.

Of these, every fault strikes at every moment in one of the two ranks; with FAULTS=all in both.
"""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from pathlib import Path

import diloco_faults
import diloco_killed
from launching import forked_jobs, torchrun

HERE = Path(__file__).resolve().parent
LIMIT = 400  # seconds, on a busy machine


def chosen() -> list[str]:
    cases = diloco_faults.all_cases()
    if os.environ.get("FAULTS") == "all":
        return cases
    a_fault = 2 * len(diloco_faults.MOMENTS)  # its cases, of which neighbours are two ranks
    return [c for i, c in enumerate(cases) if (i + i // 2 + i // a_fault) % 2 == 0]


class RoundsTest(unittest.TestCase):
    def check(self, script: str, workers: int, checks: int) -> None:
        done = torchrun(workers, HERE / script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("ok "), checks * workers, done.stdout)

    def test_of_two_workers(self):
        self.check("diloco_checks.py", 2, 11)

    def test_of_four_workers(self):
        self.check("diloco_checks.py", 4, 11)

    def test_two_workers_equal_plain_pytorch(self):
        self.check("diloco_reference_checks.py", 2, 8)

    def test_three_workers_equal_plain_pytorch(self):
        self.check("diloco_reference_checks.py", 3, 8)

    def test_state_of_two_workers(self):
        self.check("diloco_state_checks.py", 2, 11)

    def test_islands_of_two_workers(self):
        self.check("diloco_islands_checks.py", 4, 4)


class FaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = forked_jobs(HERE / "diloco_faults.py", *chosen(), limit=LIMIT)

    def test_a_lost_worker_ends_the_others_and_is_named(self):
        self.assertEqual(set(self.workers), set(chosen()))
        for case, workers in self.workers.items():
            fault, _, rank = case.split("/")
            said = {
                # Where worker 0 is lost its store is too, which another thread may see first.
                "is_killed": f"worker {rank}.* (was lost: it has (ended|died)|not answered)",
                "raises": f"worker {rank} stopped: ArithmeticError: of my own",
                "ends": f"worker {rank} (stopped|has left).*its script ended",
            }[fault]
            for worker in workers:
                if str(worker["rank"]) == rank:
                    continue
                with self.subTest(case, worker=worker["rank"]):
                    # 1: an exception that nobody caught. A worker that hangs is killed: -9.
                    self.assertEqual(worker["code"], 1, worker["output"])
                    self.assertIn("DistBackendError", worker["output"])
                    self.assertRegex(worker["output"], said)


class KilledTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = {}
        with tempfile.TemporaryDirectory() as folder:
            # Those that resume need what the killed ones have saved.
            for phases in (("whole", "killed"), ("resumed",)):
                cases = [case for phase in phases for case in diloco_killed.all_cases(phase)]
                script = HERE / "diloco_killed.py"
                cls.workers |= forked_jobs(script, folder, *cases, limit=LIMIT)

    def ends(self, case: str) -> list[dict]:
        """What each worker says at its end."""
        for worker in self.workers[case]:
            self.assertEqual(worker["code"], 0, worker["output"])
        return [json.loads(worker["output"]) for worker in self.workers[case]]

    def test_a_killed_run_resumes_to_the_bit(self):
        for case in diloco_killed.all_cases("resumed"):
            with self.subTest(case):
                ends = self.ends(case)
                self.assertEqual(ends, self.ends(f"whole/{case.split('/')[1]}"))
                self.assertEqual(len({end["shared"] for end in ends}), 1)
                # Between two rounds each worker has a model of its own.
                self.assertEqual(len({end["own"] for end in ends}), len(ends))

    def test_it_was_killed(self):
        for case in diloco_killed.all_cases("killed"):
            for worker in self.workers[case]:
                is_faulty = str(worker["rank"]) == case.split("/")[-1]
                with self.subTest(case, worker=worker["rank"]):
                    self.assertEqual(worker["code"], -9 if is_faulty else 1, worker["output"])


if __name__ == "__main__":
    unittest.main()
