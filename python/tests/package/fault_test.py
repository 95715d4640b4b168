"""A worker that fails ends the others, in time and with the cause, wherever it fails.

Runs a covering part of the matrix, every fault at every moment for one of the ranks;
FAULTS=all runs all of it.
"""

from __future__ import annotations

import os
import unittest
from pathlib import Path

import fault_matrix
import stalls
from launching import forked_jobs

HERE = Path(__file__).resolve().parent
LIMIT = 1800  # seconds, on a busy machine
STALL = f"{stalls.STALL_TIMEOUT:g} s"


def chosen() -> list[str]:
    cases = fault_matrix.all_cases()
    if os.environ.get("FAULTS") == "all":
        return cases
    # Neighbours differ in rank, those after them in their moment, and so on.
    return [c for i, c in enumerate(cases) if (i + i // 2 + i // 8 + i // 40) % 2 == 0]


def words_of(fault: str, moment: str, rank: str) -> str:
    """What the others say, as a regular expression."""
    who = f"worker {rank}"
    host = ", which hosts the rendezvous store," if rank == "0" else ""
    if fault == "raises":
        return f"{who} stopped: ArithmeticError: of my own"
    if fault == "ends" and moment == "within_a_step":
        return f"{who} (stopped|has left).*its script ended"
    if fault == "ends":
        return rf"{who} has left \(its script ended.*\) while worker \d still waits for it"
    if fault == "is_stopped":
        return (
            f"{who}({host} has not answered| has not been heard of|{host} was lost: .* frozen)"
        )
    return f"{who}{host} was lost: it has (ended|died)"


class FaultTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = forked_jobs(HERE / "fault_matrix.py", *chosen(), limit=LIMIT)

    def test_the_others_end_and_name_it(self):
        self.assertEqual(set(self.workers), set(chosen()))
        for case, workers in self.workers.items():
            _, fault, moment, rank = case.split("/")
            for worker in workers:
                if str(worker["rank"]) == rank:
                    continue
                with self.subTest(case, worker=worker["rank"]):
                    if moment == "while_others_leave":  # they have done their part
                        self.assertEqual(worker["code"], 0, worker["output"])
                        # c10d may say that its store is gone when worker 0 has left, or has
                        # failed, before this one: we have nothing to say.
                        self.assertNotRegex(
                            worker["output"], "elastiquant: |Traceback|DistBackendError"
                        )
                        continue
                    self.assertEqual(worker["code"], 1, worker["output"])
                    words = words_of(fault, moment, rank)
                    self.assertRegex(worker["output"], f"DistBackendError: .*{words}")

    def test_the_faulty_worker_ends_as_it_would(self):
        codes = {"raises": 1, "ends": 0, "exits": 0, "is_killed": -9, "is_stopped": -9}
        for case, workers in self.workers.items():
            _, fault, _, rank = case.split("/")
            worker = workers[int(rank)]
            with self.subTest(case):
                self.assertEqual(worker["code"], codes[fault], worker["output"])
                if fault == "raises":
                    self.assertIn("ArithmeticError: of my own", worker["output"])


class StallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = forked_jobs(HERE / "stalls.py", limit=LIMIT)

    def check_others(self, case: str, words: str) -> None:
        for worker in self.workers[case]:
            if worker["rank"] != stalls.FAULTY:
                with self.subTest(case, worker=worker["rank"]):
                    self.assertEqual(worker["code"], 1, worker["output"])
                    self.assertRegex(worker["output"], f"DistBackendError: .*{words}")

    def test_a_worker_that_hangs_is_named_with_where(self):
        waited = rf"worker \d has waited for it for {STALL} \(stall_timeout\)"
        for case, where in (
            ("hangs_between_steps", "between two backwards"),
            ("hangs_between_uncompressed_steps", "between two backwards"),
            ("hangs_in_backward", "in backward"),
            ("hangs_between_all_reduces", "between two collective calls"),
        ):
            words = f"worker 1 made no progress while it was {where}: {waited}"
            self.check_others(case, words)

    def test_both_ends_of_a_broken_path_are_named(self):
        words = f"workers 1 and 2 have waited for each other for {STALL}"
        self.check_others("a_path_is_broken", words)
        self.assertIn(words, self.workers["a_path_is_broken"][stalls.FAULTY]["output"])

    def test_a_worker_that_takes_long_is_waited_for(self):
        for worker in self.workers["takes_long_between_steps"]:
            self.assertEqual((worker["code"], worker["output"]), (0, ""))


if __name__ == "__main__":
    unittest.main()
