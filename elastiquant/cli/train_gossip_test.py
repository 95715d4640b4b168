"""Trains without a centre: algorithms by which workers meet their neighbours only.

usage: train_gossip_test.py PROGRAM [unittest arguments]
"""

import unittest

import train_testing
from train_testing import SMALL, summary

WORKERS = 4
STEPS = 8
# What the workers compute is little: the tests are about what they tell each other.
COMMON = SMALL | {"model": "linear", "lr": "0.001"}
COMMON |= {"workers": str(WORKERS), "steps": str(STEPS)}
# With a graph that suits each.
ALGORITHMS = {
    "dpsgd": "ring",
    "d2": "ring:lazy=1",
    "gradient-tracking": "star",
    "dcd": "torus",
    "ecd": "complete",
    "choco": "one-peer-exponential",
    "choco:delay=1": "ring",
    "deepsqueeze": "ring",
    "ad-psgd": "hypercube",
    "sgp": "exponential",
    "noloco": "random-pairs",
}


class GossipTest(train_testing.TrainTest):
    common = COMMON

    def test_every_algorithm_trains_and_tells_of_its_graph(self):
        for algorithm, graph in ALGORITHMS.items():
            with self.subTest(algorithm):
                name = algorithm.replace(":", "-")
                told = summary(self.trained(name, algorithm=algorithm, graph=graph, every=1))
                self.assertEqual((told["algorithm"], told["graph"]), (algorithm, graph))
                self.assertEqual(told["steps"], STEPS)
                self.assertEqual(sum(told["uploads"]), WORKERS * STEPS)
                if algorithm != "ad-psgd":
                    self.assertEqual(told["rounds"], STEPS)
                self.assertGreater(told["spectral_gap"], 0)
                self.assertGreater(told["consensus_distance"], 0)
                self.assertNotIn(0, told["neighbours"])
                self.assertEqual(len(told["epochs"][-1]["own_accuracy"]), WORKERS)
                self.assertGreater(told["bytes_up"], 0)

    def test_a_complete_graph_is_an_all_reduce(self):
        # SGD moves all by the mean gradient where all average with all, after each step.
        options = {"momentum": 0, "weight_decay": 0, "codec": "fp32"}
        alone = summary(self.trained("central", **options))
        choco = summary(self.trained("choco", algorithm="choco", graph="complete", **options))
        self.assertLess(choco["consensus_distance"], 1e-4)
        self.assertAlmostEqual(choco["test_loss"], alone["test_loss"], places=2)

    def test_a_resumed_run_is_the_run_that_was_not_stopped(self):
        for algorithm, graph in ALGORITHMS.items():
            if algorithm == "ad-psgd":
                continue  # pairs meet as the clock has it
            with self.subTest(algorithm):
                name = algorithm.replace(":", "-")
                options = {"algorithm": algorithm, "graph": graph, "every": 1}
                options |= {"schedule": "constant", "checkpoint_every": 4}
                whole = self.trained(name + "-whole", **options)
                part = self.trained(name, **(options | {"steps": 4}))
                self.trained(name, "--resume", **options)
                self.assertEqual(summary(part)["weights_hash"], summary(whole)["weights_hash"])
                self.assertEqual(
                    summary(part)["consensus_distance"], summary(whole)["consensus_distance"]
                )

    def test_a_checkpoint_within_a_round_is_gone_on_from(self):
        options = {"algorithm": "choco", "graph": "ring", "every": 3}
        options |= {"schedule": "constant", "checkpoint_every": 4}
        whole = self.trained("whole", **options)
        part = self.failed("part", inject="kill@step=5,rank=1", **options)
        self.trained("part", "--resume", **options)
        self.assertEqual(summary(part)["weights_hash"], summary(whole)["weights_hash"])

    def test_a_file_of_edges_is_told_by_what_is_in_it(self):
        edges, moved = self.folder / "edges.txt", self.folder / "moved.txt"
        edges.write_text("0 1\n1 2\n2 3\n")
        moved.write_text("# the same\n2 3\n0 1\n1 2\n")
        options = {"algorithm": "dpsgd", "schedule": "constant", "checkpoint_every": 4}
        whole = self.trained("whole", graph=edges, **options)
        part = self.trained("part", graph=edges, **(options | {"steps": 4}))
        edges.write_text("0 1\n1 2\n2 3\n3 0\n")
        done = self.train("part", "--resume", graph=edges, **options)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('--graph was "a file of edges with the digest', done.stderr)
        self.trained("part", "--resume", graph=moved, **options)
        self.assertEqual(summary(part)["weights_hash"], summary(whole)["weights_hash"])

    def test_pairs_resume_too(self):
        options = {"algorithm": "ad-psgd", "graph": "ring", "checkpoint_every": 4}
        options |= {"schedule": "constant"}
        part = self.trained("pairs", **(options | {"steps": 4}))
        self.trained("pairs", "--resume", **options)
        self.assertEqual(summary(part)["steps"], STEPS)

    def test_a_slow_worker_makes_fewer_steps_where_nobody_waits_for_it(self):
        # Worker 2 answers the others, and worker 1 asks them.
        for slow in (1, 2):
            with self.subTest(slow=slow):
                pace = ",".join("400ms" if w == slow else "20ms" for w in range(WORKERS))
                out = self.trained(
                    f"slow-{slow}",
                    algorithm="ad-psgd",
                    graph="ring",
                    compute=pace,
                    steps=24,
                    checkpoint_every=10,
                )
                made = summary(out)["uploads"]
                self.assertEqual(sum(made), 24 * WORKERS)
                self.assertLess(made[slow], min(made[:slow] + made[slow + 1 :]))
                steps = [line["step"] for line in train_testing.lines(out)]
                self.assertEqual(steps, sorted(steps))
                self.assertLessEqual(steps[-1], 24)
                self.assertEqual(len(steps), made[0])
        # Elsewhere all wait for it.
        waiting = self.trained(
            "waiting", algorithm="dpsgd", graph="ring", compute=pace, steps=8
        )
        self.assertEqual(summary(waiting)["uploads"], [8] * WORKERS)

    def test_who_makes_no_step_answers_all_the_same(self):
        # While it makes the step that it has taken, the others make all other ones of an epoch.
        out = self.trained(
            "asleep",
            algorithm="ad-psgd",
            graph="ring",
            compute="2s,10ms,10ms,10ms",
            generated_train="128",
            steps=None,
            epochs=3,
        )
        told = summary(out)
        self.assertEqual(sum(told["uploads"]), told["steps"] * WORKERS)
        self.assertEqual(len(told["epochs"]), 3)
        # In each epoch it takes one and asks for another.
        self.assertLessEqual(told["uploads"][0], 2 * 3)
        self.assertLess(told["uploads"][0], min(told["uploads"][1:]))

    def test_copies_are_compared_by_their_hashes(self):
        for algorithm, codec in (
            ("choco", "dither:bits=1"),
            ("choco:delay=1", "dither:bits=2"),
            ("dcd", "qsgd:bits=8"),
            ("ecd", "qsgd:bits=8"),
            ("deepsqueeze", "qsgd:bits=8"),
            ("ad-psgd", "dither:bits=4"),
        ):
            with self.subTest(algorithm):
                options = {"algorithm": algorithm, "graph": "ring", "codec": codec, "every": 1}
                options["model"] = "mlp:width=64"  # Of its messages headers are a small part.
                name = algorithm.replace(":", "-")
                usual = summary(self.trained(name, **options))
                options["check_replicas"] = "every"
                checked = summary(self.trained(name + "-checked", **options))
                self.assertTrue(checked["replicas_identical"])
                if algorithm != "ad-psgd":
                    self.assertEqual(checked["weights_hash"], usual["weights_hash"])
                    # Workers tell each other that they pause, and send no hashes.
                    self.assertLess(checked["bytes_up"], 1.001 * usual["bytes_up"])

    def test_a_copy_that_drifts_is_named(self):
        options = {"algorithm": "choco", "graph": "ring", "codec": "dither:bits=2"}
        options |= {"inject": "drift@step=2,rank=1"}
        done = self.train("drift", check_replicas="every", **options)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("after step 3 the copies on edge(s) 0 > 1"), 1)
        self.assertFalse(summary(self.folder / "drift")["replicas_identical"])

    def test_few_bits_are_few_bytes(self):
        same = {"algorithm": "dpsgd", "graph": "ring", "model": "mlp:width=16"}
        exact = summary(self.trained("exact", **same))
        few = summary(self.trained("few", codec="dither:bits=2", **same))
        self.assertLess(14 * few["bytes_up"], exact["bytes_up"])
        self.assertGreater(few["nmse"], 0)
        few = {"codec": "dither:bits=2", "measure_every": 0, "steps": 2}
        unmeasured = summary(self.trained("unmeasured", **few, **same))
        self.assertIsNone(unmeasured["nmse"])

    def test_a_run_that_may_diverge_is_warned_of(self):
        for codec, is_doubtful in (("qsgd:bits=2", True), ("qsgd:bits=8", False)):
            done = self.train(codec[-1], algorithm="dcd", graph="ring", codec=codec, steps=1)
            self.assertEqual(done.returncode, 0, done.stderr)
            words = f"warning: dcd under {codec} on ring may diverge"
            self.assertEqual(done.stderr.count(words), is_doubtful, done.stderr)

    def test_what_does_not_go_together_is_refused(self):
        for options, words in (
            ({"algorithm": "d2", "graph": "ring"}, "'ring:lazy=1'"),
            ({"algorithm": "ad-psgd", "graph": "ring", "workers": 5}, "a ring of even length"),
            ({"algorithm": "choco", "graph": "rings"}, "--graph: graph 'rings' is not known"),
            ({"algorithm": "choco", "gossip_step": 2}, "--gossip-step is '2'"),
            ({"graph": "ring"}, "are for algorithms without a centre"),
            ({"algorithm": "dpsgd", "codec_down": "fp32"}, "neither --exchange"),
        ):
            with self.subTest(words):
                done = self.train("refused", **options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
