"""A worker that is lost costs `elastiquant train --on-loss go-on` its part of a round.

usage: train_loss_test.py PROGRAM [unittest arguments]
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.path.abspath(sys.argv.pop(1))
# An epoch has 32 steps and ends with an evaluation; a round has 4. What the workers compute is
# little: the tests are about who is there.
OPTIONS = "--model linear --lr 0.001 --data generated --generated-train 1024 "
OPTIONS += "--generated-test 48 --batch 8 "
OPTIONS += "--epochs 4 --threads 1 --timeout 3 --every 4 --check-replicas every "
OPTIONS += "--algorithm local-sgd --on-loss go-on"
WORKERS = 4
# A step takes at least so long, for runs that must outlast a worker's return on any machine.
PACE = "--compute 5ms"


def command(out, *more):
    """The command line with `more` options, which may be others than the usual ones."""
    usual = OPTIONS.split()
    more = [word for words in more for word in str(words).split()]
    words = [PROGRAM, "train", "--out", str(out), *more]
    for name, value in zip(usual[::2], usual[1::2], strict=True):
        words += [] if name in more else [name, value]
    return words


def run(out, *more):
    words = command(out, "--workers", WORKERS, *more)
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)


class Worker:
    """One that was started as torchrun would, whose messages go to a file."""

    def __init__(self, out, rank, world, port, *more):
        place = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
        place["MASTER_PORT"] = port
        environment = os.environ | {name: str(value) for name, value in place.items()}
        self.said = out.parent / f"said-{rank}-{random.random()}"
        with self.said.open("w") as said:
            words = command(out, *more)
            self.process = subprocess.Popen(words, stderr=said, stdout=said, env=environment)

    def words(self):
        return self.said.read_text()

    def wait(self):
        return self.process.wait(timeout=240)


def wait_for(condition):
    for _ in range(2400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it does not happen")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TrainLossTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="eq_loss_")
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "run"

    def summary(self, done=None):
        if done is not None:
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("summary.json", done.stdout)
        summary = json.loads((self.out / "summary.json").read_text())
        self.assertTrue(summary["replicas_identical"])
        self.assertEqual(summary["world_size"], WORKERS)
        steps = summary["steps_per_epoch"] * 4
        self.assertEqual(summary["steps"], steps)
        self.assertLess(summary["train_loss"], 2.6)  # of one that knows nothing: ln 10 = 2.3
        metrics = (self.out / "metrics.jsonl").read_text().splitlines()
        lines = [json.loads(line)["step"] for line in metrics]
        self.assertEqual(lines, sorted(set(lines)))
        self.assertEqual((lines[0], lines[-1]), (1, steps))
        return summary

    def lost(self, summary):
        return sorted(loss["worker"] for loss in summary["losses"])

    def test_one_is_killed_and_comes_back(self):
        for victim in (2, 0):
            with self.subTest(victim):
                done = run(self.out, f"--inject kill@step=5,rank={victim}", "--overwrite")
                summary = self.summary(done)
                self.assertEqual(self.lost(summary), [victim])
                loss = summary["losses"][0]
                self.assertEqual(loss["round"], 2)
                self.assertIn(
                    f"worker {victim} was lost in round 2: going on with 3", done.stderr
                )
                self.assertIn(
                    f"worker {victim} was killed by SIGKILL: starting it", done.stderr
                )
                # How fast the machine starts a process says whether it was in time.
                if loss["rejoined"] is not None:
                    self.assertEqual(loss["rejoined"] % 4, 0)
                    self.assertIn(f"worker {victim} is back after step", done.stderr)

    def test_in_every_place_and_manner(self):
        faults = ["exit@step=6,rank=1", "quit@step=7,rank=3", "throw@step=9,rank=0"]
        faults += ["kill@step=10,rank=1,at=backward", "kill@step=31,rank=0,at=evaluation"]
        faults += ["kill@step=127,rank=2,at=evaluation", "kill@step=23,rank=0,at=checkpoint"]
        for fault in faults:
            with self.subTest(fault):
                done = run(self.out, "--inject", fault, "--overwrite --checkpoint-every 8")
                self.assertEqual(len(self.summary(done)["losses"]), 1, done.stderr)

    def test_other_ways_to_make_rounds(self):
        ways = ["--algorithm diloco:delay=2,mix=0.5 --lr 0.05"]
        ways += ["--algorithm diloco:eager=1 --lr 0.05"]
        ways += ["--algorithm diloco --fragments 2 --codec topk:ratio=0.1|ef --lr 0.05"]
        ways += ["--algorithm sparseloco --optimizer adamw --lr 0.001"]
        ways += ["--algorithm local-sgd --partition volumes:skew=3 --lr 0.05"]
        for way in ways:
            with self.subTest(way):
                done = run(
                    self.out,
                    way,
                    "--model mlp:width=16 --inject kill@step=9,rank=1 --overwrite",
                )
                self.assertEqual(self.lost(self.summary(done)), [1], done.stderr)

    def test_without_a_centre(self):
        gossip = "--model mlp:width=16 --every 1 --lr 0.01 --graph"
        ways = [f"--algorithm choco --codec dither:bits=2 {gossip} ring"]
        ways += [f"--algorithm choco:delay=1 --codec dither:bits=2 {gossip} complete"]
        ways += [f"--algorithm dpsgd --codec fp32 {gossip} one-peer-exponential"]
        ways += [f"--algorithm ad-psgd --codec dither:bits=4 {gossip} ring"] * 2
        faults = ["kill@step=9,rank=1", "kill@step=31,rank=0,at=evaluation"]
        faults += ["kill@step=10,rank=0,at=backward", "kill@step=9,rank=1"]
        faults += ["kill@step=20,rank=2"]
        for way, fault in zip(ways, faults, strict=True):
            with self.subTest(way):
                done = run(self.out, way, "--inject", fault, "--overwrite --epochs 4")
                summary = self.summary(done)
                self.assertEqual(self.lost(summary), [int(fault.split("rank=")[1][0])])
                # The mean of models that have come together, of all who are there at the end.
                self.assertLess(summary["consensus_distance"], 0.1)
                rejoined = summary["losses"][0]["rejoined"]
                self.assertIn(rejoined, (None, 50, 100))

    def test_without_a_centre_too_few_are_left(self):
        more = ["--model mlp:width=16 --every 1 --lr 0.01 --graph ring"]
        more += ["--algorithm choco --codec dither:bits=2"]
        more += ["--least-workers 4", "--seed 7"]
        done = run(self.out, *more, "--inject stop@step=9,rank=1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("of 4 workers 3 are left, fewer than --least-workers 4", done.stderr)
        done = run(self.out, *more, "--resume")
        summary = self.summary(done)
        self.assertEqual([loss["rejoined"] for loss in summary["losses"]], [50])
        self.assertLess(summary["consensus_distance"], 0.1)

    def graph(self, *edges):
        file = self.out.parent / "edges.txt"
        file.write_text("\n".join(edges))
        return f"--every 1 --graph {file}"

    def test_files_of_edges_that_differ_between_machines_are_refused(self):
        port, ways = free_port(), []
        for name in ("edges", "others"):
            file = self.out.parent / f"{name}.txt"
            file.write_text("0 1\n1 2\n2 3\n" + ("3 0\n" if name == "others" else ""))
            ways += [f"--every 1 --algorithm dpsgd --codec fp32 --graph {file} {PACE}"]
        workers = [Worker(self.out, rank, 4, port, ways[rank == 2]) for rank in range(4)]
        codes = [worker.wait() for worker in workers]
        self.assertEqual(codes, [2] * 4, [worker.words() for worker in workers])
        told = "".join(worker.words() for worker in workers)
        self.assertEqual(
            told.count("worker 2 was started with other options than the others: --graph is"),
            1,
            told,
        )

    def test_one_that_comes_back_with_another_graph_ends_alone(self):
        way = f"--algorithm dpsgd --codec fp32 {self.graph('0 1', '1 2')} --epochs 48"
        port = free_port()
        workers = [
            Worker(self.out, rank, 3, port, way, PACE, "--inject kill@step=9,rank=1")
            for rank in range(3)
        ]
        self.assertEqual(workers[1].wait(), -signal.SIGKILL)
        (self.out.parent / "edges.txt").write_text("0 1\n1 2\n0 2")
        workers[1] = Worker(self.out, 1, 3, port, way, PACE)
        codes = [worker.wait() for worker in workers]
        self.assertEqual(codes, [0, 2, 0], [worker.words() for worker in workers])
        self.assertIn(
            "worker 1 was started with other options than the others: --graph is",
            workers[1].words(),
        )

    def test_without_a_centre_it_is_told_when_a_graph_falls_apart(self):
        way = f"--algorithm dpsgd --codec fp32 {self.graph('0 1', '1 2', '2 3')}"
        done = run(self.out, way, "--inject stop@step=9,rank=1")
        summary = self.summary(done)
        self.assertEqual(summary["losses"][0]["parts"], [[0], [2, 3]])
        self.assertIn("the graph has fallen into 2 parts, 0 | 2, 3:", done.stderr)
        # What one of the ends is lost by leaves the others together.
        done = run(self.out, way, "--inject stop@step=9,rank=3", "--overwrite")
        self.assertIsNone(self.summary(done)["losses"][0]["parts"])
        self.assertNotIn("parts", done.stderr)

    def test_the_graph_of_the_summary_is_that_of_worker_0_if_it_is_lost(self):
        way = f"--algorithm dpsgd --codec fp32 {self.graph('0 2', '0 3', '1 2', '1 3')}"
        done = run(self.out, way, "--inject stop@step=9,rank=0")
        summary = self.summary(done)
        self.assertEqual(self.lost(summary), [0])
        self.assertEqual(summary["neighbours"], [2, 3])

    def test_push_sum_ends_where_weight_could_not_come_back(self):
        edges = ("0 > 1", "1 > 2", "2 > 3", "3 > 0")
        way = f"--algorithm sgp --codec fp32 {self.graph(*edges)}"
        for fault in ("kill", "stop"):
            with self.subTest(fault):
                done = run(self.out, way, f"--inject {fault}@step=9,rank=1", "--overwrite")
                self.assertEqual(done.returncode, 3, done.stderr)
                why = "worker 2 gives to worker 3, from which no way leads back to it"
                self.assertEqual(done.stderr.count(why), 1, done.stderr)
                self.assertNotIn("gave up", done.stderr)

    def test_two_die_at_once(self):
        done = run(self.out, "--inject kill@step=9,rank=1;kill@step=9,rank=3")
        self.assertEqual(self.lost(self.summary(done)), [1, 3])

    def test_all_die_but_one(self):
        faults = ";".join(f"kill@step={5 + 4 * rank},rank={rank}" for rank in range(3))
        self.assertEqual(self.lost(self.summary(run(self.out, "--inject", faults))), [0, 1, 2])

    def test_all_die(self):
        faults = ";".join(f"kill@step=9,rank={rank}" for rank in range(WORKERS))
        done = run(self.out, "--inject", faults)
        self.assertEqual(done.returncode, 3, done.stderr)
        # By whether one was started again before the last one was seen to end.
        self.assertRegex(
            done.stderr, "no worker is left that knows|none of the others could go on"
        )

    def test_one_that_is_stopped_for_good_is_no_failure(self):
        done = run(self.out, "--inject stop@step=9,rank=1")
        self.assertEqual(self.lost(self.summary(done)), [1])
        self.assertIn("worker 1 was lost in round 3: going on with 3", done.stderr)

    def test_too_few_are_left(self):
        more = ["--least-workers 4", "--seed 7"]
        done = run(self.out, *more, "--inject stop@step=9,rank=1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("of 4 workers 3 are left, fewer than --least-workers 4", done.stderr)
        self.assertTrue((self.out / "checkpoint-12.safetensors").exists())
        done = run(self.out, *more, "--resume")
        summary = self.summary(done)
        self.assertEqual([loss["rejoined"] for loss in summary["losses"]], [12])

    def test_too_few_are_left_at_the_end_of_an_epoch(self):
        more = ["--least-workers 4"]
        done = run(self.out, *more, "--inject stop@step=30,rank=1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertTrue((self.out / "checkpoint-32.safetensors").exists())
        summary = self.summary(run(self.out, *more, "--resume"))
        self.assertEqual([epoch["epoch"] for epoch in summary["epochs"]], [1, 2, 3, 4])
        self.assertEqual([epoch["steps"] for epoch in summary["epochs"]], [32] * 4)

    def test_those_that_were_absent_are_back_without_memory_too(self):
        more = ["--least-workers 4"]
        done = run(self.out, *more, "--inject stop@step=9,rank=1")
        self.assertEqual(done.returncode, 3, done.stderr)
        summary = self.summary(run(self.out, *more, "--resume", "--forget-memory"))
        self.assertEqual([loss["rejoined"] for loss in summary["losses"]], [12])

    def test_stop_is_what_it_was(self):
        fault = "--inject kill@step=5,rank=2"
        words = command(self.out, "--workers", WORKERS, "--on-loss stop", fault)
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("worker 2 was killed by SIGKILL; the others were stopped", done.stderr)
        self.assertIn("worker 0 stops: worker 2 was lost: it has ended", done.stderr)

    def test_without_a_loss_a_killed_run_resumes_exactly(self):
        more = "--checkpoint-every 12 --timeout 60"  # nobody is to be lost, if it is only slow
        whole = self.summary(run(self.out, more, "--overwrite"))
        self.assertEqual(whole["losses"], [])
        fault = "--inject stop@step=27,rank=0;stop@step=27,rank=1"
        words = command(self.out, "--workers", WORKERS, more, "--overwrite", fault)
        program = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for((self.out / "checkpoint-24.safetensors").exists)
        program.kill()  # its workers die with it
        program.wait(timeout=60)
        resumed = self.summary(run(self.out, more, "--resume"))
        self.assertEqual(resumed["weights_hash"], whole["weights_hash"])

    def test_one_wakes_up_when_the_others_have_gone_on(self):
        # Five seconds: long enough for it to notice.
        more = ["--epochs 24", PACE, "--inject stop@step=9,rank=2"]
        port = free_port()
        workers = [Worker(self.out, rank, 3, port, *more) for rank in range(3)]
        wait_for(lambda: "worker 2 was lost in round 3: going on with 2" in workers[0].words())
        workers[2].process.send_signal(signal.SIGCONT)
        codes = [worker.wait() for worker in workers]
        self.assertEqual(codes, [0, 0, 0], [worker.words() for worker in workers])
        self.assertIn("worker 2 is back after step", workers[0].words())
        summary = json.loads((self.out / "summary.json").read_text())
        self.assertTrue(summary["replicas_identical"])

    def test_one_is_started_again_as_torchrun_would(self):
        # Ten seconds: long enough for a process to start.
        more = ["--epochs 48", PACE, "--inject kill@step=9,rank=1"]
        port = free_port()
        workers = [Worker(self.out, rank, 3, port, *more) for rank in range(3)]
        self.assertEqual(workers[1].wait(), -signal.SIGKILL)
        workers[1] = Worker(self.out, 1, 3, port, *more)
        codes = [worker.wait() for worker in workers]
        self.assertEqual(codes, [0, 0, 0], [worker.words() for worker in workers])
        self.assertIn("worker 1 is back after step", workers[0].words())

    def test_the_host_of_the_store_is_lost(self):
        port = free_port()
        more = ["--inject kill@step=9,rank=0"]
        workers = [Worker(self.out, rank, 3, port, *more) for rank in range(3)]
        codes = [worker.wait() for worker in workers]
        self.assertEqual(codes, [-signal.SIGKILL, 3, 3], [worker.words() for worker in workers])
        self.assertRegex(workers[1].words(), "store")

    def test_refuses_what_it_cannot_do(self):
        for words, why in (
            ("--algorithm delayed", "local-sgd, diloco or sparseloco"),
            ("--algorithm d2 --graph complete", "take dpsgd, dcd, choco"),
            ("--codec powersgd:rank=2", "take another codec"),
            ("--least-workers 0", "--least-workers"),
            ("--least-workers 9", "there are 4 workers"),
            ("--on-loss wait", "valid are: stop, go-on"),
        ):
            with self.subTest(words):
                done = run(self.out, words, "--overwrite")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
