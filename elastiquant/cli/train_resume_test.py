"""Goes on with a run of `elastiquant train` that was killed, exactly.

usage: train_resume_test.py PROGRAM [unittest arguments]
"""

import os
import random
import signal
import time
import unittest

from train_reference import ReferenceTest, alive, metrics, start, steps_done, train, workers_of
from train_testing import summary


class TrainResumeTest(ReferenceTest):
    def test_a_killed_worker_is_named_and_the_run_resumes_exactly(self):
        broken = train(self.out(), inject="kill@step=7,rank=1")
        self.assertEqual(broken.returncode, 3, broken.stderr)
        self.assertIn("worker 1 was killed by SIGKILL", broken.stderr)
        self.assertEqual(steps_done(self.out()), 7)
        resumed = train(self.out(), "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("after step 4", resumed.stderr)
        self.expect_same_as_reference(self.out())

    def test_killing_everything_at_any_moment_loses_only_the_work_since_the_checkpoint(self):
        moments = random.Random(5)
        for wanted in (3, 9):
            process = start(self.out(), "--resume")
            with process:
                self.wait_until(lambda n=wanted: steps_done(self.out()) >= n)
                time.sleep(moments.uniform(0, 0.1))
                workers = workers_of(process)
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            self.wait_until(lambda pids=workers: not any(map(alive, pids.values())), 10)
        resumed = train(self.out(), "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.expect_same_as_reference(self.out())

    def test_what_codecs_remember_resumes_exactly(self):
        for codec, momentum in (("elastic:bits=2|ef", 0.9), ("elastic:bits=2|dgc", 0)):
            with self.subTest(codec=codec):
                whole, broken = self.out() / "whole", self.out() / "broken"
                same = {"codec": codec, "momentum": momentum}
                done = train(whole, "--overwrite", **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIs(summary(whole)["replicas_identical"], True)
                resumed = self.kill_and_resume(broken, **same)
                self.assertIn("after step 4", resumed.stderr)
                self.assertEqual(metrics(broken), metrics(whole))
                self.assertEqual(
                    summary(broken)["weights_hash"], summary(whole)["weights_hash"]
                )

    def test_adapted_levels_resume_exactly(self):
        same = {"codec": "alq", "adapt_every": 3}
        whole, broken = self.train_twice(**same)
        self.assertEqual(metrics(broken), metrics(whole))
        never = self.out() / "never"
        self.assertEqual(train(never, codec="alq").returncode, 0)
        self.assertEqual(metrics(never)[:3], metrics(whole)[:3])
        self.assertNotEqual(metrics(never)[-1], metrics(whole)[-1])

    def test_missing_memory_is_named_and_can_be_forgotten(self):
        ef = {"codec": "elastic:bits=2|ef"}
        self.assertEqual(train(self.out(), inject="kill@step=7,rank=1", **ef).returncode, 3)
        (self.out() / "checkpoint-4.worker-1.safetensors").unlink()
        broken = train(self.out(), "--resume", **ef)
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertIn("checkpoint-4.worker-1.safetensors", broken.stderr)
        self.assertIn("--forget-memory", broken.stderr)
        resumed = train(self.out(), "--resume", "--forget-memory", **ef)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_damaged_memory_is_named_and_the_checkpoint_before_has_its_own(self):
        ef = {"codec": "elastic:bits=2|ef"}
        whole, out = self.out() / "whole", self.out() / "broken"
        self.assertEqual(train(whole, **ef).returncode, 0)
        self.assertEqual(train(out, inject="kill@step=10,rank=0", **ef).returncode, 3)
        os.truncate(out / "checkpoint-8.worker-1.safetensors", 1000)
        broken = train(out, "--resume", **ef)
        self.assertEqual(broken.returncode, 4, broken.stderr)
        self.assertIn("checkpoint-8.worker-1.safetensors: length check failed", broken.stderr)
        self.assertIn("take checkpoint-8.safetensors out of worker 0's --out", broken.stderr)
        (out / "checkpoint-8.safetensors").unlink()
        resumed = train(out, "--resume", **ef)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("after step 4", resumed.stderr)
        self.assertEqual(metrics(out), metrics(whole))
        self.assertEqual(summary(out)["weights_hash"], summary(whole)["weights_hash"])

    def test_another_workers_memory_is_refused(self):
        ef = {"codec": "elastic:bits=2|ef"}
        self.assertEqual(train(self.out(), inject="kill@step=7,rank=1", **ef).returncode, 3)
        own = (self.out() / "checkpoint-4.worker-0.safetensors").read_bytes()
        (self.out() / "checkpoint-4.worker-1.safetensors").write_bytes(own)
        broken = train(self.out(), "--resume", **ef)
        self.assertEqual(broken.returncode, 4, broken.stderr)
        self.assertIn("saved by worker 0, and this is worker 1", broken.stderr)
        self.assertIn("--forget-memory", broken.stderr)

    def test_memory_survives_a_change_of_bucket_size(self):
        ef = {"codec": "elastic:bits=2|ef"}
        self.assertEqual(train(self.out(), inject="kill@step=7,rank=1", **ef).returncode, 3)
        resumed = train(self.out(), "--resume", bucket_kib=64, **ef)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("--bucket-kib 256 and goes on with 64", resumed.stderr)
        self.assertIs(summary(self.out())["replicas_identical"], True)

    def test_a_run_does_not_go_on_with_fewer_samples(self):
        text = self.out() / "text"
        text.mkdir(parents=True)
        (text / "a").write_text("Some text, of which there is enough for a few samples. " * 40)
        lm = {"model": "gpt:layers=1,width=16,heads=1,context=8", "data": text}
        lm |= {"generated_train": None, "generated_test": None}
        self.assertEqual(train(self.out(), inject="kill@step=7,rank=1", **lm).returncode, 3)
        (text / "b").write_text("More of it.")
        broken = train(self.out(), "--resume", **lm)
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertRegex(broken.stderr, r"was started on \d+ training samples, and --data has")
        (text / "b").unlink()
        self.assertEqual(train(self.out(), "--resume", **lm).returncode, 0)

    def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(self):
        self.assertEqual(train(self.out(), inject="kill@step=10,rank=0").returncode, 3)
        newest = self.out() / "checkpoint-8.safetensors"
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content)
        resumed = train(self.out(), "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("checkpoint-8.safetensors: checksum check failed", resumed.stderr)
        self.assertIn("after step 4", resumed.stderr)
        self.expect_same_as_reference(self.out())
        for file in self.out().glob("checkpoint-*.safetensors"):
            os.truncate(file, 1000)
        broken = train(self.out(), "--resume")
        self.assertEqual(broken.returncode, 4, broken.stderr)
        self.assertIn("checkpoint-12.safetensors: length check failed", broken.stderr)

    def test_a_run_that_replaces_another_resumes_with_its_own_memory(self):
        ef = {"codec": "elastic:bits=2|ef", "checkpoint_every": 1}
        self.assertEqual(train(self.out(), inject="kill@step=8,rank=1", **ef).returncode, 3)
        anew = train(self.out(), "--overwrite", inject="kill@step=3,rank=1", **ef)
        self.assertEqual(anew.returncode, 3, anew.stderr)
        left = {file.name for file in self.out().glob("checkpoint-*")}
        own = {f"checkpoint-{s}.worker-{w}.safetensors" for s in (1, 2, 3) for w in (0, 1)}
        self.assertLessEqual(left - own, {f"checkpoint-{s}.safetensors" for s in (2, 3)})
        resumed = train(self.out(), "--resume", **ef)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_a_finished_run_without_a_centre_stays_as_it_is(self):
        same = {"algorithm": "dpsgd", "graph": "ring", "codec": "fp32", "workers": 3}
        done = train(self.out(), **same)
        self.assertEqual(done.returncode, 0, done.stderr)
        before = summary(self.out())
        again = train(self.out(), "--resume", **same)
        self.assertEqual(again.returncode, 0, again.stderr)
        after = summary(self.out())
        for key in ("weights_hash", "consensus_distance", "test_accuracy", "steps"):
            self.assertEqual(after[key], before[key], key)
        self.assertGreater(after["consensus_distance"], 0)

    def test_a_run_may_grow_longer_and_not_shorter(self):
        same = {"schedule": "constant", "generated_train": 160}  # an epoch has 10 steps
        done = train(self.out(), steps=12, **same)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([e["steps"] for e in summary(self.out())["epochs"]], [10, 2])
        fewer = train(self.out(), "--resume", steps=11, **same)
        self.assertEqual(fewer.returncode, 2, fewer.stderr)
        self.assertIn("has made 12 steps already, and would be over after 11", fewer.stderr)
        more = train(self.out(), "--resume", steps=20, **same)
        self.assertEqual(more.returncode, 0, more.stderr)
        told = summary(self.out())["epochs"]
        self.assertEqual([(e["epoch"], e["steps"]) for e in told], [(1, 10), (2, 10)])

    def test_a_run_whose_means_come_late_may_grow_longer(self):
        for late, every in (("delayed:delay=2", 1), ("delayed:delay=4", 3)):
            with self.subTest(late):
                same = {"schedule": "constant", "algorithm": late, "every": every}
                same |= {"codec": "elastic:bits=4|ef"}
                done = train(self.out(), "--overwrite", steps=11, **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                more = train(self.out(), "--resume", steps=20, **same)
                self.assertEqual(more.returncode, 0, more.stderr)
                told = summary(self.out())
                self.assertEqual(told["steps"], 20)
                # Those of every few steps, and one for what is left at each of the two ends.
                ends = 0 if every == 1 else 2
                self.assertEqual(told["rounds"], 20 // every + ends)
                self.assertIs(told["replicas_identical"], True)

    def test_checkpoints_of_an_older_version_are_named(self):
        self.out().mkdir()
        (self.out() / "checkpoint-8.eqc").write_bytes(b"EQCK")
        broken = train(self.out(), "--resume")
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertIn("checkpoint-8.eqc, come from an older version", broken.stderr)
        unforced = train(self.out())
        self.assertEqual(unforced.returncode, 2, unforced.stderr)
        self.assertIn("--overwrite", unforced.stderr)
        anew = train(self.out(), "--overwrite", steps=1)
        self.assertEqual(anew.returncode, 0, anew.stderr)
        self.assertEqual(
            [file.name for file in self.out().glob("checkpoint-*")],
            ["checkpoint-1.safetensors"],
        )


if __name__ == "__main__":
    unittest.main()
