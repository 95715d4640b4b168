"""A worker of `elastiquant train` that fails ends the others, in time and with the cause.

usage: train_fault_test.py PROGRAM [unittest arguments]

Runs a covering part of the matrix, every fault at every moment for one of the ranks, in about
30 s; FAULTS=all in the environment runs all of it.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAM = os.path.abspath(sys.argv.pop(1))
WORKERS = 3
# Each epoch has 4 steps, and ends with an evaluation and a checkpoint.
OPTIONS = "--model mlp --data generated --generated-train 96 --generated-test 48 --batch 8 "
OPTIONS += f"--workers {WORKERS} --epochs 3 --checkpoint-every 4 --timeout 3 --threads 1"

# How it ends the program, and what the others say.
FAULTS = {
    "throw": (1, "stopped: thrown on purpose"),
    "quit": (3, "was lost: it has ended"),
    "exit": (1, "was lost: it has ended"),
    "kill": (3, "was lost: it has ended"),
    "stop": (3, "has not been heard of for"),
}
STEP_OF = {"step": 5, "backward": 5, "evaluation": 7, "checkpoint": 7, "end": 11}
RANKS = (0, WORKERS - 1)


def chosen():
    cases = list(itertools.product(FAULTS, STEP_OF, RANKS))
    if os.environ.get("FAULTS") == "all":
        return cases
    # Neighbours differ in rank, those after them in their moment.
    return [case for i, case in enumerate(cases) if (i + i // 2 + i // 10) % 2 == 0]


def run(case):
    fault, moment, rank = case
    inject = f"{fault}@step={STEP_OF[moment]},rank={rank},at={moment}"
    with tempfile.TemporaryDirectory(prefix="eq_fault_") as folder:
        command = [PROGRAM, "train", *OPTIONS.split(), "--inject", inject]
        command += ["--out", str(Path(folder) / "run")]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


class TrainFaultTest(unittest.TestCase):
    def test_the_others_end_and_name_it(self):
        with ThreadPoolExecutor(3) as pool:
            for case, done in zip(chosen(), pool.map(run, chosen()), strict=True):
                with self.subTest(case):
                    self.check(*case, done)

    def check(self, fault, moment, rank, done):
        code, words = FAULTS[fault]
        if moment == "end":  # the others have done their part
            self.assertEqual(done.returncode, 0 if fault == "quit" else code, done.stderr)
            self.assertNotIn("stops:", done.stderr)
            return
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, rf"elastiquant train: .*worker {rank} ")
        for other in set(range(WORKERS)) - {rank}:
            said = f"worker {other} stops: worker {rank} {words}"
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
