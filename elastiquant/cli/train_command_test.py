"""Runs `elastiquant train` as a person would, and breaks it as the world would.

usage: train_command_test.py PROGRAM [unittest arguments]
"""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np
import train_testing
from train_testing import PROGRAM, lines, run, summary, weights

STEPS = 12
COMMON = {
    "model": "resnet20",
    "generated_train": "384",
    "generated_test": "64",
    "batch": "8",
    "seed": "3",
    "lr": "0.05",
    "workers": "2",
    "codec": "elastic:bits=4",
    "checkpoint_every": "4",
    "steps": str(STEPS),
    "measure_every": "5",
}


def command_line(out, *flags, **options):
    return train_testing.command_line(COMMON, out, *flags, **options)


def train(out, *flags, **options):
    return run(command_line(out, *flags, **options), timeout=120)


def start(out, *flags, **options):
    """The process under way, leader of a process group of its own."""
    return subprocess.Popen(
        command_line(out, *flags, **options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def metrics(out):
    """The lines of metrics.jsonl without what depends on the clock."""
    found = lines(out)
    for line in found:
        del line["seconds"], line["images_per_second"]
    return found


def certificate(out):
    return lines(out, "certificate.jsonl")


def steps_done(out):
    file = out / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def workers_of(process):
    """The process ids of a launcher's workers, by rank."""
    by_rank = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (folder / "cmdline").read_text().split("\0")
        except (OSError, IndexError):
            continue  # it ended while we looked
        if parent == process.pid and "--worker-rank" in words:
            by_rank[int(words[words.index("--worker-rank") + 1])] = int(folder.name)
    return by_rank


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class TrainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="eq_train_")
        cls.root = Path(cls.folder.name)
        cls.reference = cls.root / "reference"
        done = train(cls.reference)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def out(self):
        return self.root / self.id().rsplit(".", 1)[1]

    def wait_until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "nothing happened in time")
            time.sleep(0.05)

    def expect_same_certificate(self, lines, expected):
        """But for the order in which threads add up."""
        self.assertEqual(len(lines), len(expected))
        self.assertGreater(len(lines), 0)
        for line, other in zip(lines, expected, strict=True):
            self.assertIn(line["verdict"], ("holds", "loose"))
            self.assertEqual(line.keys(), other.keys())
            for key, value in line.items():
                if isinstance(value, float):
                    self.assertAlmostEqual(value, other[key], delta=1e-9 * abs(value))
                else:
                    self.assertEqual(value, other[key], key)

    def expect_same_as_reference(self, out):
        self.assertEqual(summary(out)["weights_hash"], summary(self.reference)["weights_hash"])
        self.assertEqual(
            summary(out)["test_accuracy"], summary(self.reference)["test_accuracy"]
        )
        self.assertEqual(summary(out)["bytes_up"], summary(self.reference)["bytes_up"])
        self.expect_same_certificate(certificate(out), certificate(self.reference))
        self.assertEqual(metrics(out), metrics(self.reference))

    def test_summary_has_what_scripts_rely_on(self):
        told = summary(self.reference)
        self.assertEqual(told["model"], "resnet20")
        self.assertEqual(told["world_size"], 2)
        self.assertEqual(told["steps"], STEPS)
        self.assertIs(told["replicas_identical"], True)
        self.assertGreater(told["train_loss"], 0)
        self.assertTrue(0 <= told["test_accuracy"] <= 100)
        self.assertTrue(3 < told["bits_per_coordinate"] < 6, told["bits_per_coordinate"])
        # The metrics are worker 0's. It sends what the other receives, so the mean of both
        # workers' bytes is that of its own in both directions.
        lines = metrics(self.reference)
        moved = sum(line["bytes_up"] + line["bytes_down"] for line in lines)
        self.assertAlmostEqual(told["bytes_up"], moved / 2, delta=STEPS)
        self.assertAlmostEqual(told["bytes_down"], moved / 2, delta=STEPS)
        parts = told["seconds"]
        for part in ("compute", "encode", "transmit", "wait", "decode", "total"):
            self.assertGreaterEqual(parts[part], 0)
        self.assertAlmostEqual(parts["compute"] + parts["wait"], parts["total"], places=3)
        self.assertAlmostEqual(told["seconds_per_step"], parts["total"] / STEPS)
        self.assertEqual([line["step"] for line in metrics(self.reference)], list(range(1, 13)))
        self.assertGreater(told["epochs"][0]["nmse"], 0)

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
                killed = train(broken, "--overwrite", inject="kill@step=7,rank=1", **same)
                self.assertEqual(killed.returncode, 3, killed.stderr)
                resumed = train(broken, "--resume", **same)
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                self.assertIn("after step 4", resumed.stderr)
                self.assertEqual(metrics(broken), metrics(whole))
                self.assertEqual(
                    summary(broken)["weights_hash"], summary(whole)["weights_hash"]
                )

    def test_measuring_the_variance_leaves_the_run_as_it_is(self):
        for codec, momentum in (
            ("fp32", 0.9),
            ("elastic:bits=2", 0.9),
            ("elastic:bits=2|ef:lr=inside", 0.9),
            ("elastic:bits=2|dgc", 0),
        ):
            with self.subTest(codec=codec):
                plain, measured = self.out() / "plain", self.out() / "measured"
                same = {"codec": codec, "momentum": momentum}
                for out, every in ((plain, 0), (measured, 4)):
                    done = train(out, "--overwrite", measure_variance=every, **same)
                    self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(
                    summary(measured)["weights_hash"], summary(plain)["weights_hash"]
                )
                self.assertEqual(summary(measured)["bytes_up"], summary(plain)["bytes_up"])
                lines = (measured / "metrics.jsonl").read_text().splitlines()
                found = [json.loads(line).get("variance") for line in lines]
                self.assertEqual([i for i, v in enumerate(found) if v is not None], [3, 7, 11])
                for variance in (v for v in found if v is not None):
                    self.assertEqual(variance["estimates"], 10)
                    self.assertGreater(variance["exact"], 0)
                    ratio = variance["compressed"] / variance["exact"]
                    # Nothing is added to the noise of batches, or much of two bits.
                    if codec == "fp32":
                        self.assertAlmostEqual(ratio, 1, delta=0.8)
                    elif codec == "elastic:bits=2":
                        self.assertGreater(ratio, 1.5)

    def test_adamw_trains_in_its_metric_and_resumes_exactly(self):
        same = {
            "optimizer": "adamw",
            "codec": "dither:bits=1|ef",
            "lr": 0.001,
            "schedule": "wsd",
            "clip_norm": 1,
            "exact_steps": 2,
        }
        names = ("whole", "broken", "plain", "at_once")
        whole, broken, plain, at_once = (self.out() / name for name in names)
        done = train(whole, **same)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = summary(whole)
        self.assertEqual((said["optimizer"], said["metric"]), ("adamw", "adam"))
        self.assertIs(said["replicas_identical"], True)
        self.assertEqual(said["validation_loss"], said["test_loss"])
        killed = train(broken, inject="kill@step=7,rank=1", **same)
        self.assertEqual(killed.returncode, 3, killed.stderr)
        resumed = train(broken, "--resume", **same)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(summary(broken)["weights_hash"], said["weights_hash"])
        self.assertEqual(train(plain, metric="plain", **same).returncode, 0)
        self.assertEqual(summary(plain)["metric"], "plain")
        sent = [line["bytes_up"] for line in metrics(whole)]
        self.assertEqual(sent[0], sent[1])  # uncompressed, while there are hardly any moments
        self.assertGreater(sent[1], 8 * max(sent[2:]))
        self.assertLess(max(line["bytes_up"] for line in metrics(plain)), sent[1] / 8)
        self.assertEqual(train(at_once, **same | {"exact_steps": 0}).returncode, 0)
        self.assertEqual(metrics(plain)[0], metrics(at_once)[0])  # there are no moments yet
        self.assertNotEqual(metrics(plain)[1], metrics(at_once)[1])
        self.assertNotEqual(summary(plain)["weights_hash"], said["weights_hash"])

    def test_algorithms_have_their_codec_and_resume_exactly(self):
        adam = {"optimizer": "adamw", "lr": 0.001}
        for algorithm, options, codec in (
            ("onebit-adam:freeze=3", adam, "efsign|ef:lr=outside"),
            ("zeroone-adam:growth=2", adam, "efsign|ef:lr=outside"),
            ("demo", {"lr": 0.001, "momentum": 0}, "threshold:value=1e-38,bits=exact"),
        ):
            with self.subTest(algorithm=algorithm):
                whole, broken = self.out() / "whole", self.out() / "broken"
                same = {"algorithm": algorithm, "codec": None, **options}
                done = train(whole, "--overwrite", **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = summary(whole)
                self.assertEqual((said["algorithm"], said["metric"]), (algorithm, "plain"))
                self.assertEqual(said["codec"], codec)
                self.assertIs(said["replicas_identical"], True)
                killed = train(broken, "--overwrite", inject="kill@step=7,rank=1", **same)
                self.assertEqual(killed.returncode, 3, killed.stderr)
                resumed = train(broken, "--resume", **same)
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                self.assertEqual(metrics(broken), metrics(whole))
                self.assertEqual(summary(broken)["weights_hash"], said["weights_hash"])

    def test_workers_that_train_alone_meet_in_rounds_and_resume_exactly(self):
        # Killed after a checkpoint in which means were under way, but for the first and last.
        for algorithm, options, rounds in (
            ("local-sgd", {"every": 5, "codec": "elastic:bits=2|ef"}, 3),
            ("diloco:delay=2,mix=0.5", {"every": 6, "fragments": 2}, 6),
            ("diloco:eager=1", {"every": 3, "optimizer": "adamw", "lr": 0.001}, 5),
            ("sparseloco", {"every": 4}, 3),
            ("delayed:delay=3", {"codec": "elastic:bits=4|ef"}, STEPS),
            ("delayed:delay=3", {"every": 2, "optimizer": "adamw", "lr": 0.001}, STEPS // 2),
        ):
            with self.subTest(algorithm=algorithm):
                whole, broken = self.out() / "whole", self.out() / "broken"
                same = {"algorithm": algorithm, "codec": None, **options}
                done = train(whole, "--overwrite", **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = summary(whole)
                self.assertEqual((said["algorithm"], said["metric"]), (algorithm, "plain"))
                self.assertIs(said["replicas_identical"], True)
                self.assertEqual((said["rounds"], said["uploads"]), (rounds, [rounds] * 2))
                killed = train(broken, "--overwrite", inject="kill@step=7,rank=1", **same)
                self.assertEqual(killed.returncode, 3, killed.stderr)
                resumed = train(broken, "--resume", **same)
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                self.assertEqual(
                    [line["loss"] for line in metrics(broken)],
                    [line["loss"] for line in metrics(whole)],
                )
                again = summary(broken)
                for field in ("weights_hash", "rounds", "uploads", "test_loss"):
                    self.assertEqual(again[field], said[field], field)

    def test_lazy_workers_send_what_has_changed_and_resume_exactly(self):
        # A large batch of few images and a low rate: gradients hardly change.
        calm = {"batch": 48, "generated_train": 96, "lr": 0.001}
        for algorithm, options in (
            ("lag-wk:xi=1", {"momentum": 0}),
            ("lag-ps:xi=100,history=5", {"momentum": 0}),
            ("laq:xi=1,silence=3", {"momentum": 0}),
            ("lasg:xi=10", {"codec": "dither:bits=4"}),
        ):
            with self.subTest(algorithm=algorithm):
                whole, broken = self.out() / "whole", self.out() / "broken"
                same = {
                    "algorithm": algorithm,
                    "codec": None,
                    "model": "mlp",
                    **calm,
                    **options,
                }
                done = train(whole, "--overwrite", "--no-augment", **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                said = summary(whole)
                self.assertIs(said["replicas_identical"], True)
                self.assertEqual(said["rounds"], STEPS)
                self.assertGreaterEqual(min(said["uploads"]), 1)
                self.assertLess(sum(said["uploads"]), STEPS * 2)
                killed = train(
                    broken, "--overwrite", "--no-augment", inject="kill@step=7,rank=1", **same
                )
                self.assertEqual(killed.returncode, 3, killed.stderr)
                resumed = train(broken, "--resume", "--no-augment", **same)
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                self.assertEqual(metrics(broken), metrics(whole))
                again = summary(broken)
                for field in ("weights_hash", "rounds", "uploads", "test_loss"):
                    self.assertEqual(again[field], said[field], field)

    def test_a_whole_gradient_of_its_own_images_is_seldom_sent_again(self):
        """As published: no noise of minibatches, and no epoch deals other images."""
        whole = {"algorithm": "lag-wk", "codec": "fp32", "model": "mlp", "batch": 50}
        whole |= {"momentum": 0, "lr": 0.05, "schedule": "constant"}
        for images, volumes in ((100, [50, 50]), (101, [51, 50])):
            done = train(
                self.out(), "--no-augment", "--overwrite",
                generated_train=images, steps=40, **whole,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            said = summary(self.out())
            self.assertEqual(said["partition"]["volumes"], volumes)
            if images == 100:  # of 51 each pass over the share leaves out another one
                self.assertLess(max(said["uploads"]), 30)

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

    def test_bf16_is_nearly_fp32(self):
        losses = {}
        for precision in ("fp32", "bf16"):
            out = self.out() / precision
            done = train(out, precision=precision, steps=2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIs(summary(out)["replicas_identical"], True)
            losses[precision] = metrics(out)[0]["loss"]
        self.assertNotEqual(losses["bf16"], losses["fp32"])
        self.assertAlmostEqual(losses["bf16"] / losses["fp32"], 1, delta=0.02)

    def test_adapted_levels_resume_exactly(self):
        same = {"codec": "alq", "adapt_every": 3}
        whole, broken = self.out() / "whole", self.out() / "broken"
        self.assertEqual(train(whole, **same).returncode, 0)
        killed = train(broken, inject="kill@step=7,rank=1", **same)
        self.assertEqual(killed.returncode, 3, killed.stderr)
        resumed = train(broken, "--resume", **same)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(metrics(broken), metrics(whole))
        never = self.out() / "never"
        self.assertEqual(train(never, codec="alq").returncode, 0)
        self.assertEqual(metrics(never)[:3], metrics(whole)[:3])
        self.assertNotEqual(metrics(never)[-1], metrics(whole)[-1])

    def test_dgc_warms_up_by_epochs(self):
        same = {"codec": "dgc:ratio=0.01", "momentum": 0, "generated_train": 64}
        done = train(self.out(), **same)  # 4 steps an epoch
        self.assertEqual(done.returncode, 0, done.stderr)
        sent = [line["bytes_up"] for line in metrics(self.out())]
        epochs = [sum(sent[at : at + 4]) for at in (0, 4, 8)]
        self.assertGreater(epochs[0], 2 * epochs[1])
        self.assertGreater(epochs[1], 1.5 * epochs[2])

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

    def test_workers_die_with_their_launcher(self):
        with start(self.out(), steps=5000) as process:
            self.wait_until(lambda: steps_done(self.out()) >= 1)
            workers = workers_of(process)
            self.assertEqual(sorted(workers), [0, 1])
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

    def test_terngrad_adds_its_codes_as_integers_and_resumes_exactly(self):
        folder = {name: self.out() / name for name in ("codec", "again", "two-phase")}
        same = {"codec": "terngrad:clip=0", "check_replicas": "every"}
        killed = train(folder["codec"], **same, inject="kill@step=6,rank=0")
        self.assertNotEqual(killed.returncode, 0)
        for out, more in (
            (folder["codec"], ("--resume",)),
            (folder["again"], ("--exchange", "integer-sum")),
            (folder["two-phase"], ("--exchange", "two-phase")),
        ):
            done = train(out, *more, **same)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIs(summary(out)["replicas_identical"], True)
        hashes = {name: summary(out)["weights_hash"] for name, out in folder.items()}
        self.assertEqual(hashes["codec"], hashes["again"])
        self.assertNotEqual(hashes["codec"], hashes["two-phase"])
        # A scale that another worker needs is within the bound of the certificate.
        for line in certificate(folder["codec"]):
            self.assertIn(line["verdict"], ("holds", "loose"), line)

    def test_terngrads_step_with_nan_is_skipped_by_all(self):
        done = train(self.out(), codec="terngrad", inject="nan@step=3,rank=1,times=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        told = summary(self.out())
        self.assertEqual(told["skipped_steps"], 2)
        self.assertIs(told["replicas_identical"], True)

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

    def test_a_run_begins_with_the_weights_of_a_file_and_resumes_exactly(self):
        init = self.out() / "weights.safetensors"
        init.parent.mkdir()
        shutil.copy(self.reference / "checkpoint-12.safetensors", init)
        whole, broken = self.out() / "whole", self.out() / "broken"
        done = train(whole, init=init, check_replicas="every")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(
            summary(whole)["weights_hash"], summary(self.reference)["weights_hash"]
        )
        content = hashlib.md5(init.read_bytes()).hexdigest()
        self.assertEqual(summary(whole)["options"]["--init"], f"md5 {content}")
        killed = train(broken, inject="kill@step=7,rank=1", init=init)
        self.assertEqual(killed.returncode, 3, killed.stderr)
        # The same content goes on, wherever it lies; so does the run without the file.
        elsewhere = init.rename(self.out() / "elsewhere.safetensors")
        other = train(broken, "--resume", init=self.reference / "checkpoint-8.safetensors")
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertRegex(other.stderr, f'--init was "md5 {content}" and is "md5 ')
        killed = train(broken, "--resume", init=elsewhere, inject="kill@step=10,rank=1")
        self.assertEqual(killed.returncode, 3, killed.stderr)
        self.assertIn("after step 4", killed.stderr)
        resumed = train(broken, "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("after step 8", resumed.stderr)
        self.assertEqual(metrics(broken), metrics(whole))
        for key in ("weights_hash", "test_loss", "options"):
            self.assertEqual(summary(broken)[key], summary(whole)[key])
        late = train(self.reference, "--resume", init=elsewhere)
        self.assertEqual(late.returncode, 2, late.stderr)
        self.assertIn("--init was not given and is", late.stderr)

    def test_a_file_that_does_not_fit_is_explained_and_harms_nothing(self):
        self.assertEqual(train(self.out(), steps=1).returncode, 0)
        mine = self.out() / "checkpoint-1.safetensors"
        for model, words in (
            ("mlp", "'fc1.bias', 'fc2.weight' and 3 more, and has 'bn1.bias'"),
            ("resnet32", "it lacks 'layer1.3.conv1.weight'"),
            ("linear", "it has 'bn1.bias', 'bn1.num_batches_tracked'"),
        ):
            with self.subTest(model=model):
                broken = train(self.out(), "--overwrite", model=model, init=mine)
                self.assertEqual(broken.returncode, 2, broken.stderr)
                self.assertIn(words, broken.stderr)
                self.assertNotIn("worker 1", broken.stderr)
                self.assertTrue(mine.exists())
        damaged = self.out() / "damaged"
        damaged.write_bytes(mine.read_bytes()[:-1])
        broken = train(self.out(), "--overwrite", init=damaged)
        self.assertEqual(broken.returncode, 4, broken.stderr)
        self.assertIn("damaged: length check failed", broken.stderr)
        # The file may lie in the folder of the run that it replaces.
        done = train(self.out(), "--overwrite", init=mine, steps=2)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_resuming_with_other_options_says_which(self):
        broken = train(self.reference, "--resume", lr=0.5)
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertIn("--lr was 0.05 and is 0.5", broken.stderr)
        unforced = train(self.reference)
        self.assertEqual(unforced.returncode, 2, unforced.stderr)
        self.assertIn("--overwrite", unforced.stderr)

    def test_bad_input_is_explained(self):
        for option, value, words in (
            ("codec", "fp33", "fp32"),
            ("model", "resnet21", "resnet20"),
            ("init", "/nowhere", "there is no file /nowhere"),
            ("data", "/nowhere", "/nowhere"),
            ("lr", 0, "--lr"),
            ("workers", 0, "--workers"),
            ("codec", "elastic:bits=2|dgc", "--momentum 0"),
            ("link", "fast", "mbit"),
            ("exchange", "ring", "all-gather"),
            ("exchange", "integer-sum", "terngrad"),
            ("exact", "nolayer.*", "nolayer"),
            ("partition", "fair", "valid are: classes, dirichlet, iid, volumes"),
            ("partition", "dirichlet:beta=1", "it has alpha"),
            ("partition", "classes:k=11", "there are 10: give a smaller k"),
            ("dump_gradients", "half", "'half'"),
            ("algorithm", "diloco:lr=0", "numbers above 0"),
            ("algorithm", "diloco:delay=33", "from 0 to 32"),
            ("algorithm", "diloco:mix=0.5", "needs a delay"),
            ("every", 4, "local-sgd"),
            ("algorithm", "lag-wk:silence=-1", "whole numbers from 0"),
            ("dump_gradients", STEPS + 1, f"which has {STEPS} steps"),
        ):
            with self.subTest(option=option):
                broken = train(self.out(), **{option: value})
                self.assertEqual(broken.returncode, 2, broken.stderr)
                self.assertIn(words, broken.stderr)
                self.assertNotIn("worker 1", broken.stderr)

    def test_a_port_in_use_is_explained(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            broken = train(self.out(), port=port)
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertIn(f"port {port}", broken.stderr)
        self.assertIn("--port", broken.stderr)

    def test_the_port_is_taken_before_the_workers_start(self):
        process = start(self.out())
        try:
            deadline = time.monotonic() + 30
            while not (pids := workers_of(process)):
                self.assertLess(time.monotonic(), deadline, "no worker was started in time")
                time.sleep(0.001)
            words = Path(f"/proc/{next(iter(pids.values()))}/cmdline").read_text().split("\0")
            port = int(words[words.index("--store-port") + 1])
            with self.assertRaisesRegex(OSError, "in use"), socket.socket() as thief:
                thief.bind(("127.0.0.1", port))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def test_a_dumped_gradient_is_what_moves_the_weights(self):
        done = train(
            self.out(),
            codec="fp32",
            workers=1,
            steps=3,
            schedule="constant",
            momentum=0,
            weight_decay=0,
            checkpoint_every=1,
            dump_gradients="3",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        before = weights(self.out() / "checkpoint-2.safetensors")
        after = weights(self.out() / "checkpoint-3.safetensors")
        gradient = np.load(self.out() / "gradients/gradient-000003.npy")
        self.assertEqual((gradient.dtype, gradient.ndim), (np.float32, 1))
        layers = json.loads((self.out() / "gradients/layers.json").read_text())
        self.assertEqual({layer["name"] for layer in layers}, set(before))
        self.assertEqual(sum(layer["elements"] for layer in layers), gradient.size)
        for layer in layers:
            name, begin = layer["name"], layer["offset"]
            self.assertEqual(layer["elements"], np.prod(layer["shape"]))
            part = gradient[begin : begin + layer["elements"]]
            self.assertGreater(np.abs(part).max(), 0, name)
            moved = (before[name].astype(float) - after[name]) / 0.05
            np.testing.assert_allclose(part, moved, rtol=1e-3, atol=1e-5, err_msg=name)

    def test_data_that_lies_on_workers_is_told(self):
        for spec in ("dirichlet:alpha=.3", "classes:k=2"):
            with self.subTest(partition=spec):
                same = {"partition": spec, "workers": 3, "batch": 4}
                done = train(self.out(), "--overwrite", **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                told = summary(self.out())
                self.assertEqual(told["partition"]["spec"], spec)
                volumes, classes = (told["partition"][key] for key in ("volumes", "classes"))
                # The first six classes, which three workers have, have 232 of the 384 images.
                self.assertEqual(sum(volumes), 232 if "classes" in spec else 384)
                self.assertEqual([sum(counts) for counts in classes], volumes)
                self.assertEqual(told["steps_per_epoch"], sum(volumes) // 12)
                self.assertIs(told["replicas_identical"], True)
                self.assertIn(f"{sum(volumes)} training samples lie on 3 workers", done.stderr)
                self.assertRegex(done.stderr, rf"\n     2 +{volumes[2]} ")
        self.assertEqual(summary(self.reference)["partition"], {"spec": "iid"})
        self.assertNotIn("--partition", summary(self.reference)["options"])

    def test_data_that_lies_on_workers_resumes_exactly(self):
        whole, broken = self.out() / "whole", self.out() / "broken"
        same = {"partition": "volumes:skew=100", "workers": 3, "batch": 4}
        done = train(whole, "--quiet", **same)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("lie on", done.stderr)
        killed = train(broken, inject="kill@step=7,rank=1", **same)
        self.assertEqual(killed.returncode, 3, killed.stderr)
        resumed = train(broken, "--resume", **same)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(metrics(broken), metrics(whole))
        for key in ("partition", "weights_hash"):
            self.assertEqual(summary(broken)[key], summary(whole)[key])
        other = train(broken, "--resume", **(same | {"partition": "iid"}))
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertIn('--partition was "volumes:alpha=1,skew=100"', other.stderr)

    def test_workers_count_by_what_lies_on_them(self):
        done = train(
            self.out(),
            codec="fp32",
            partition="volumes:skew=1000000",
            schedule="constant",
            momentum=0,
            weight_decay=0,
            steps=2,
            checkpoint_every=1,
            dump_gradients="2",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        _, small = summary(self.out())["partition"]["volumes"]
        self.assertLess(small, 5)
        before = weights(self.out() / "checkpoint-1.safetensors")
        after = weights(self.out() / "checkpoint-2.safetensors")
        gradient = np.load(self.out() / "gradients/gradient-000002.npy")
        layers = json.loads((self.out() / "gradients/layers.json").read_text())
        moved = np.concatenate(
            [(before[x["name"]].astype(float) - after[x["name"]]) / 0.05 for x in layers]
        )
        # What moves the weights is worker 0's gradient but for one part in a hundred or less.
        self.assertLess(np.linalg.norm(moved - gradient), 0.1 * np.linalg.norm(gradient))

    def test_gradients_are_dumped_before_compression_and_change_nothing(self):
        done = train(self.out(), dump_gradients="0%,5,100%")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_same_as_reference(self.out())
        files = sorted(file.name for file in (self.out() / "gradients").iterdir())
        steps = ["gradient-000001.npy", "gradient-000005.npy", "gradient-000012.npy"]
        self.assertEqual(files, [*steps, "layers.json"])
        # The first step's own gradient knows nothing of the codec.
        exact = self.out() / "exact"
        self.assertEqual(train(exact, codec="fp32", steps=1, dump_gradients="1").returncode, 0)
        first, other = (
            np.load(run / "gradients/gradient-000001.npy") for run in (self.out(), exact)
        )
        np.testing.assert_array_equal(first, other)
        # A new run takes away what an old one left.
        again = train(exact, "--overwrite", steps=1)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertFalse((exact / "gradients").exists())

    def test_a_dumped_gradient_can_be_given_to_bench_and_encode(self):
        self.assertEqual(train(self.out(), steps=1, dump_gradients="1").returncode, 0)
        file = self.out() / "gradients/gradient-000001.npy"
        bench = run([PROGRAM, "bench", "--input", file, "--codec", "elastic:bits=4", "--json"])
        self.assertEqual(bench.returncode, 0, bench.stderr)
        told = json.loads(bench.stdout)
        self.assertEqual(told["elements"], np.load(file).size)
        self.assertTrue(0 < told["results"][0]["nmse"] < 1)
        frame = self.out() / "gradient.eqf"
        encode = run([PROGRAM, "encode", "--codec", "fp32", "--seed", "1", file, frame])
        self.assertEqual(encode.returncode, 0, encode.stderr)
        self.assertEqual(run([PROGRAM, "decode", frame, self.out() / "back.npy"]).returncode, 0)
        np.testing.assert_array_equal(np.load(self.out() / "back.npy"), np.load(file))

    def test_torchrun_gives_the_same_weights(self):
        command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone"]
        command += ["--nproc-per-node", "2", *command_line(self.out(), workers=None)]
        done = run(command)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_same_as_reference(self.out())


if __name__ == "__main__":
    unittest.main()
