"""Gossip, DiLoCo and LocalSGD that go on without a lost worker."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

import go_on
from launching import forked_jobs

HERE = Path(__file__).resolve().parent
LIMIT = 500  # seconds, on a busy machine


class GoOnTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = forked_jobs(HERE / "go_on.py", limit=LIMIT)

    def test_the_others_go_on_alike_without_a_lost_worker(self):
        self.assertEqual(set(self.workers), set(go_on.all_cases()))
        for case, workers in self.workers.items():
            with self.subTest(case):
                ends = []
                for worker in workers[: go_on.LAST]:
                    self.assertEqual(worker["code"], 0, worker["output"])
                    said = worker["output"].splitlines()
                    self.assertIn(
                        f"worker {go_on.LAST} is lost: the others go on without it", said
                    )
                    ends += [json.loads(line) for line in said if line.startswith("{")]
                self.assertEqual(len(ends), go_on.LAST)
                self.assertEqual(len({end["weights"] for end in ends}), 1)
                self.assertEqual({end["rounds"] for end in ends}, {ends[0]["rounds"]})
                self.assertTrue(all(end["lost"] == [go_on.LAST] for end in ends))

    def test_a_graph_that_falls_into_parts_is_told(self):
        told = "the graph has fallen into 2 parts, 0 | 1: models of different parts do not come"
        gossip = {case for case in self.workers if case.split("/")[1] in ("choco", "on-a-path")}
        split = {case for case in gossip if "on-a-path" in case}
        self.assertEqual(len(split), len(go_on.MOMENTS))
        for case in gossip:
            parts = [[0], [1]] if case in split else [[0, 1]]
            for worker in self.workers[case][: go_on.LAST]:
                with self.subTest(case, worker=worker["rank"]):
                    said = worker["output"]
                    self.assertEqual(said.count(told), case in split, said)
                    self.assertIn(f'"parts": {json.dumps(parts)}', said)

    def test_who_was_frozen_is_told_that_it_cannot_go_on(self):
        frozen = [case for case in self.workers if case.startswith("freezes")]
        self.assertEqual(len(frozen), 2)
        for case in frozen:
            worker = self.workers[case][go_on.LAST]
            self.assertEqual(worker["code"], 1)
            self.assertIn("DistBackendError: this worker cannot go on", worker["output"])


if __name__ == "__main__":
    unittest.main()
