"""elastiquant.Gossip, on workers that live and on workers that die."""

from __future__ import annotations

import unittest
from pathlib import Path

import gossip_faults
from launching import forked_jobs, forked_ranks

HERE = Path(__file__).resolve().parent
LIMIT = 900  # seconds, on a very busy machine


class GossipTest(unittest.TestCase):
    def check(self, script: str, checks: int) -> None:
        for workers in (2, 4):
            done = forked_ranks(workers, HERE / script)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("ok "), checks * workers, done.stdout)

    def test_trains(self):
        self.check("gossip_checks.py", 19)

    def test_saves_and_loads(self):
        self.check("gossip_state_checks.py", 12)


class FaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cases = gossip_faults.all_cases()
        cls.workers = forked_jobs(HERE / "gossip_faults.py", *cases, limit=LIMIT)

    def test_a_lost_worker_ends_the_others_and_is_named(self):
        self.assertEqual(set(self.workers), set(gossip_faults.all_cases()))
        for case, workers in self.workers.items():
            fault, _, rank = case.split("/")
            lost = f"worker {rank}.* "
            lost += "(was lost: it has (ended|died)|not answered|not been heard of)"
            said = {
                "is_killed_at_the_start": lost,
                "is_killed": lost,
                "raises": f"worker {rank} stopped: ArithmeticError: of my own",
                "ends": f"worker {rank} (stopped|has left).*its script ended",
            }[fault]
            for worker in workers:
                if str(worker["rank"]) == rank:
                    continue
                with self.subTest(case, worker=worker["rank"]):
                    self.assertEqual(worker["code"], 1, worker["output"])
                    self.assertRegex(worker["output"], said)


if __name__ == "__main__":
    unittest.main()
