"""Trains by each algorithm with a centre, and goes on exactly after a kill.

usage: train_algorithm_test.py PROGRAM [unittest arguments]
"""

import unittest

from train_reference import STEPS, ReferenceTest, certificate, metrics, train
from train_testing import summary


class TrainAlgorithmTest(ReferenceTest):
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
        self.kill_and_resume(broken, **same)
        self.assertEqual(summary(broken)["weights_hash"], said["weights_hash"])
        refused = train(plain, metric="plain", **same)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--exact-steps is for gradients that are compressed in", refused.stderr)
        del same["exact_steps"]
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
                same = {"algorithm": algorithm, "codec": None, **options}
                whole, broken = self.train_twice(**same)
                said = summary(whole)
                self.assertEqual((said["algorithm"], said["metric"]), (algorithm, "plain"))
                self.assertEqual(said["codec"], codec)
                self.assertIs(said["replicas_identical"], True)
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
                same = {"algorithm": algorithm, "codec": None, **options}
                whole, broken = self.train_twice(**same)
                said = summary(whole)
                self.assertEqual((said["algorithm"], said["metric"]), (algorithm, "plain"))
                self.assertIs(said["replicas_identical"], True)
                self.assertEqual((said["rounds"], said["uploads"]), (rounds, [rounds] * 2))
                self.assertEqual(
                    [line["loss"] for line in metrics(broken)],
                    [line["loss"] for line in metrics(whole)],
                )
                again = summary(broken)
                fields = ("weights_hash", "rounds", "uploads", "test_loss", "bytes_up")
                for field in fields:
                    self.assertEqual(again[field], said[field], field)
                # But for the order in which threads add up.
                self.assertAlmostEqual(again["nmse"], said["nmse"], delta=1e-9)

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
                same = {
                    "algorithm": algorithm,
                    "codec": None,
                    "model": "mlp:width=16",
                    **calm,
                    **options,
                }
                whole, broken = self.train_twice("--no-augment", **same)
                said = summary(whole)
                self.assertIs(said["replicas_identical"], True)
                self.assertEqual(said["rounds"], STEPS)
                self.assertGreaterEqual(min(said["uploads"]), 1)
                self.assertLess(sum(said["uploads"]), STEPS * 2)
                self.assertEqual(metrics(broken), metrics(whole))
                again = summary(broken)
                fields = ("weights_hash", "rounds", "uploads", "test_loss", "bytes_up")
                for field in fields:
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

    def test_dgc_warms_up_by_epochs(self):
        same = {"codec": "dgc:ratio=0.01", "momentum": 0, "generated_train": 64}
        done = train(self.out(), **same)  # 4 steps an epoch
        self.assertEqual(done.returncode, 0, done.stderr)
        sent = [line["bytes_up"] for line in metrics(self.out())]
        epochs = [sum(sent[at : at + 4]) for at in (0, 4, 8)]
        self.assertGreater(epochs[0], 2 * epochs[1])
        self.assertGreater(epochs[1], 1.5 * epochs[2])

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


if __name__ == "__main__":
    unittest.main()
