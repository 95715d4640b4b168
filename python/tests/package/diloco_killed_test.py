"""DiLoCo and LocalSGD whose workers go on from what they have saved, after one was killed."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

import diloco_killed
from launching import forked_jobs

HERE = Path(__file__).resolve().parent
LIMIT = 400  # seconds, on a busy machine


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
