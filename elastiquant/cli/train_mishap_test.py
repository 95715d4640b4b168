"""What befalls workers of `elastiquant train`: signals, silence, NaN and weights that drift.

usage: train_mishap_test.py PROGRAM [unittest arguments]
"""

import os
import subprocess
import time
import unittest

from train_reference import (
    STEPS,
    ReferenceTest,
    alive,
    command_line,
    metrics,
    start,
    steps_done,
    train,
    workers_of,
)
from train_testing import summary


class TrainMishapTest(ReferenceTest):
    def test_workers_die_with_their_launcher(self):
        with start(self.out(), steps=5000) as process:
            self.wait_until(lambda: steps_done(self.out()) >= 1)
            workers = workers_of(process)
            self.assertEqual(sorted(workers), [0, 1])
            # It forks them, which no process with other threads may do.
            self.assertEqual(len(os.listdir(f"/proc/{process.pid}/task")), 1)
            process.kill()
            process.communicate()
        self.wait_until(lambda: not any(map(alive, workers.values())), 10)

    def test_sigterm_to_the_launcher_ends_the_workers(self):
        with start(self.out(), steps=5000) as process:
            self.wait_until(lambda: steps_done(self.out()) >= 1)
            workers = workers_of(process)
            process.terminate()
            _, said = process.communicate(timeout=20)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("SIGTERM", said)
        self.assertFalse(any(map(alive, workers.values())))

    def test_a_run_goes_on_where_nothing_can_be_said_on_stderr(self):
        """On a full disk, and where stderr is closed: a socket would get its number."""
        for number, redirection in enumerate(("2>/dev/full", "2>&-")):
            with self.subTest(redirection):
                words = command_line(self.out() / str(number))
                done = subprocess.run(["bash", "-c", f'"$@" {redirection}', "bash", *words])
                self.assertEqual(done.returncode, 0)
                self.assertEqual(len(metrics(self.out() / str(number))), STEPS)
                self.assertIs(summary(self.out() / str(number))["replicas_identical"], True)

    def test_a_result_that_cannot_be_written_to_stdout_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                command_line(self.out()), stdout=full, stderr=subprocess.PIPE, text=True
            )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot write to stdout: No space left on device", done.stderr)
        self.assertEqual(len(metrics(self.out())), STEPS)

    def test_no_two_runs_write_to_one_folder(self):
        with start(self.out(), steps=5000) as process:
            self.wait_until(lambda: steps_done(self.out()) >= 1)
            for flag in ("--overwrite", "--resume"):
                second = train(self.out(), flag)
                self.assertEqual(second.returncode, 2, second.stderr)
                self.assertIn("another process is writing a run to", second.stderr)
            self.assertIsNone(process.poll())
            process.kill()
            process.communicate()
        again = train(self.out(), "--overwrite")  # at once, while the workers still end
        self.assertEqual(again.returncode, 0, again.stderr)

    def test_a_silent_worker_is_lost_within_the_time_out(self):
        begin = time.monotonic()
        broken = train(self.out(), inject="stop@step=2,rank=1", timeout=3)
        self.assertEqual(broken.returncode, 3, broken.stderr)
        self.assertIn("worker 1", broken.stderr)
        self.assertLess(time.monotonic() - begin, 45)

    def test_a_step_with_nan_is_skipped_by_all(self):
        done = train(self.out(), inject="nan@step=3,rank=1,times=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = summary(self.out())
        self.assertEqual(told["skipped_steps"], 2)
        self.assertIs(told["replicas_identical"], True)
        lines = metrics(self.out())
        self.assertEqual([line["step"] for line in lines if line.get("skipped")], [4, 5])
        self.assertEqual(lines[:3], metrics(self.reference)[:3])
        self.assertIsNotNone(told["test_accuracy"])
        self.assertGreater(lines[-1]["loss"], 0)

    def test_terngrads_step_with_nan_is_skipped_by_all(self):
        done = train(self.out(), codec="terngrad", inject="nan@step=3,rank=1,times=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = summary(self.out())
        self.assertEqual(told["skipped_steps"], 2)
        self.assertIs(told["replicas_identical"], True)

    def test_adam_at_one_bit_trains_though_its_only_exact_step_was_skipped(self):
        options = {"algorithm": "onebit-adam:freeze=1", "optimizer": "adamw", "lr": 1e-3}
        options |= {"codec": "efsign|ef:lr=outside", "momentum": None}
        done = train(self.out(), inject="nan@step=0,rank=1", **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        skipped, exact, compressed = metrics(self.out())[:3]
        self.assertTrue(skipped["skipped"])
        self.assertGreater(exact["bytes_up"], 4 * compressed["bytes_up"])

    def test_a_lazy_step_with_nan_is_skipped_by_all(self):
        done = train(self.out(), inject="nan@step=2,rank=0", algorithm="laq", codec=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([m["loss"] for m in metrics(self.out())].count(None), 1)
        self.assertIs(summary(self.out())["replicas_identical"], True)

    def test_a_local_step_with_nan_is_left_out_by_its_worker_alone(self):
        options = {"algorithm": "diloco", "every": 4}
        done = train(self.out(), inject="nan@step=2,rank=0", **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([m["loss"] for m in metrics(self.out())].count(None), 1)
        self.assertIs(summary(self.out())["replicas_identical"], True)

    def test_too_many_nans_in_a_row_stop_the_run_with_the_layers_name(self):
        broken = train(self.out(), inject="nan@step=2,rank=1,times=9", max_skipped=3)
        self.assertEqual(broken.returncode, 5, broken.stderr)
        self.assertRegex(
            broken.stderr, r"step 5 after 3 skipped steps in a row.*layer fc\.bias on worker 1"
        )

    def test_a_replica_that_drifts_is_named(self):
        broken = train(self.out(), inject="drift@step=2,rank=1", check_replicas="every")
        self.assertEqual(broken.returncode, 1, broken.stderr)
        self.assertRegex(broken.stderr, r"after step 3 the weights of worker\(s\) 1 differ")
        self.assertIs(summary(self.out())["replicas_identical"], False)


if __name__ == "__main__":
    unittest.main()
