"""Runs `elastiquant train` as a person would, with good input and bad.

usage: train_command_test.py PROGRAM [unittest arguments]
"""

import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import time
import unittest

from train_reference import (
    STEPS,
    ReferenceTest,
    command_line,
    metrics,
    start,
    train,
    workers_of,
)
from train_testing import run, summary


class TrainCommandTest(ReferenceTest):
    def test_summary_has_what_scripts_rely_on(self):
        told = summary(self.reference)
        self.assertEqual(told["model"], "resnet8")
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

    def test_more_threads_than_cores_are_told_of(self):
        few = {"model": "mlp", "steps": 1, "generated_train": 64, "generated_test": 16}
        cores = os.cpu_count()
        for threads, algorithm, told in (
            (cores, "allreduce", True),
            (cores, "quantised-data:central=1", False),  # worker 0 alone computes
            (1, "allreduce", False),
        ):
            with self.subTest(threads=threads, algorithm=algorithm):
                one = {"threads": threads, "algorithm": algorithm, "codec": None}
                done = train(self.out() / "threads", "--overwrite", "--quiet", **few | one)
                self.assertEqual(done.returncode, 0, done.stderr)
                warning = f"2 workers with --threads {cores} share {cores} cores"
                self.assertEqual(warning in done.stderr, told and cores > 1, done.stderr)

    def test_measuring_the_variance_leaves_the_run_as_it_is(self):
        # The first has running statistics, which are to stay as they are too.
        for model, codec, momentum in (
            ("resnet8", "elastic:bits=2", 0.9),
            ("mlp:width=16", "fp32", 0.9),
            ("mlp:width=16", "elastic:bits=2|ef:lr=inside", 0.9),
            ("mlp:width=16", "elastic:bits=2|dgc", 0),
        ):
            with self.subTest(codec=codec):
                plain, measured = self.out() / "plain", self.out() / "measured"
                same = {"model": model, "codec": codec, "momentum": momentum}
                same["dump_gradients"] = "4"
                for out, every in ((plain, 0), (measured, 4)):
                    done = train(out, "--overwrite", measure_variance=every, **same)
                    self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(
                    summary(measured)["weights_hash"], summary(plain)["weights_hash"]
                )
                self.assertEqual(summary(measured)["bytes_up"], summary(plain)["bytes_up"])
                dumped = [out / "gradients/gradient-000004.npy" for out in (plain, measured)]
                self.assertEqual(*(file.read_bytes() for file in dumped))
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
            ("resnet20", "it lacks 'layer1.1.conv1.weight'"),
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

    def test_what_cannot_start_harms_nothing_either(self):
        ef = {"codec": "elastic:bits=2|ef"}
        self.assertEqual(train(self.out(), steps=1, **ef).returncode, 0)
        before = {file.name: file.read_bytes() for file in self.out().iterdir()}
        for options, words in (
            ({"compute": "1ms,1ms,1ms"}, "--compute has 3 devices, and there are 2 workers"),
            (
                {"algorithm": "laq", "codec": "fp32", "partition": "volumes:skew=9"},
                "it needs shares of the same volume",
            ),
        ):
            with self.subTest(words):
                broken = train(self.out(), "--overwrite", **options)
                self.assertEqual(broken.returncode, 2, broken.stderr)
                self.assertIn(words, broken.stderr)
                after = {file.name: file.read_bytes() for file in self.out().iterdir()}
                self.assertEqual(after, before)
        done = train(self.out(), "--overwrite", steps=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        left = [file.name for file in self.out().glob("checkpoint-*")]
        self.assertEqual(left, ["checkpoint-2.safetensors"])

    def test_a_run_that_has_ended_is_not_replaced_unasked(self):
        out = self.out() / "ended"
        self.assertEqual(train(out, checkpoint_every=0).returncode, 0)
        before = (out / "metrics.jsonl").read_bytes()
        again = train(out, checkpoint_every=0)
        self.assertEqual(again.returncode, 2, again.stderr)
        self.assertIn("holds a run that has ended; replace it by --overwrite", again.stderr)
        self.assertEqual((out / "metrics.jsonl").read_bytes(), before)
        replaced = train(out, "--overwrite", checkpoint_every=0, steps=2)
        self.assertEqual(replaced.returncode, 0, replaced.stderr)

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
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = start(self.out(), port=port)
        try:
            deadline = time.monotonic() + 30
            while not workers_of(process):
                self.assertLess(time.monotonic(), deadline, "no worker was started in time")
                time.sleep(0.001)
            with self.assertRaisesRegex(OSError, "in use"), socket.socket() as thief:
                thief.bind(("127.0.0.1", port))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def test_a_folders_name_need_not_be_text(self):
        out = self.out() / os.fsdecode(b"caf\xe9")
        for flags in ((), ("--resume",)):
            done = train(out, *flags, data_seed=1)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("caf\N{REPLACEMENT CHARACTER}", summary(out)["command"])

    def test_workers_that_were_started_with_other_options_are_named(self):
        script = self.out().with_suffix(".sh")
        words = shlex.join(
            command_line(self.out(), workers=None, lr=None, checkpoint_every=None)
        )
        # As on boards of which one was given another command line.
        script.write_text(
            f"{words} --lr 0.0$((1 + RANK)) --checkpoint-every $((4 + RANK)) --threads 1"
        )
        command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone"]
        done = run([*command, "--nproc-per-node", "2", "sh", str(script)])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(
            "worker 1 was started with other options than the others: --checkpoint-every is 5 "
            "and not 4; --lr is 0.02 and not 0.01. Start all workers alike",
            done.stderr,
        )

    def test_torchrun_gives_the_same_weights(self):
        command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone"]
        command += ["--nproc-per-node", "2", *command_line(self.out(), workers=None)]
        done = run(command)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_same_as_reference(self.out())


if __name__ == "__main__":
    unittest.main()
