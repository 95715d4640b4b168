"""elastiquant.DiLoCo and LocalSGD, on workers that live and on workers that die.

Of these, every fault strikes at every moment in one of the two ranks; with FAULTS=all in both.
"""

from __future__ import annotations

import os
import unittest
from pathlib import Path

import diloco_faults
from launching import forked_jobs, forked_ranks

HERE = Path(__file__).resolve().parent
LIMIT = 900  # seconds, on a very busy machine


def chosen() -> list[str]:
    cases = diloco_faults.all_cases()
    if os.environ.get("FAULTS") == "all":
        return cases
    a_fault = 2 * len(diloco_faults.MOMENTS)  # its cases, of which neighbours are two ranks
    return [c for i, c in enumerate(cases) if (i + i // 2 + i // a_fault) % 2 == 0]


class RoundsTest(unittest.TestCase):
    def check(self, script: str, workers: int, checks: int) -> None:
        done = forked_ranks(workers, HERE / script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("ok "), checks * workers, done.stdout)

    def test_of_two_workers(self):
        self.check("diloco_checks.py", 2, 20)

    def test_of_four_workers(self):
        self.check("diloco_checks.py", 4, 20)

    def test_two_workers_equal_plain_pytorch(self):
        self.check("diloco_reference_checks.py", 2, 8)

    def test_three_workers_equal_plain_pytorch(self):
        self.check("diloco_reference_checks.py", 3, 8)

    def test_state_of_two_workers(self):
        self.check("diloco_state_checks.py", 2, 14)

    def test_outer_optimisers_of_two_workers(self):
        self.check("diloco_outer_checks.py", 2, 6)

    def test_batch_norms_of_two_workers(self):
        self.check("norms_checks.py", 2, 8)

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


if __name__ == "__main__":
    unittest.main()
