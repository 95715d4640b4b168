"""elastiquant.Codec on tensors: its bytes, what they decode to, and what it refuses."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import torch

import elastiquant
from elastiquant import Codec, NonFiniteError

# Absent where only an installed package is tested, without the program.
PROGRAM = os.environ.get("ELASTIQUANT_PROGRAM")
KEY = (1, 2, 3, 0)


def single_message_specs() -> list[str]:
    """Every registered codec that encodes a lone tensor, and with each modifier of its own."""
    specs = []
    for info in elastiquant.codecs():
        variants = [info.spec] + [f"{info.name}|{modifier}" for modifier in info.modifiers]
        specs += [spec for spec in variants if not Codec(spec).state]
    return [*specs, "elastic:bits=3|rotate"]


def gradient(n: int = 3000) -> torch.Tensor:
    """Heavy-tailed, as gradients are, and the same on every run."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(n, generator=generator) ** 3 * 1e-3


class BytesTest(unittest.TestCase):
    @unittest.skipUnless(PROGRAM, "the program is not built here")
    def test_are_those_of_the_program(self):
        import numpy

        tensor = gradient()
        with tempfile.TemporaryDirectory() as folder:
            given, frame = Path(folder, "in.npy"), Path(folder, "out.eqf")
            numpy.save(given, tensor.numpy())
            for spec in ("fp32", "elastic:bits=3|rans", "dither:bits=2", "topk", "atomo-svd"):
                with self.subTest(spec):
                    command = [PROGRAM, "encode", "--codec", spec, "--seed", "1", "--step", "2"]
                    subprocess.run(
                        [*command, "--worker", "3", given, frame],
                        check=True,
                        capture_output=True,
                    )
                    self.assertEqual(bytes(Codec(spec).encode(tensor, KEY)), frame.read_bytes())

    def test_depend_on_values_and_key_only(self):
        tensor = gradient(600)
        codec = Codec("elastic:bits=3")
        frame = codec.encode(tensor, KEY)
        wide = torch.zeros(600, 3)
        wide[:, 1] = tensor
        same = {
            "again": tensor,
            "strided": wide[:, 1],
            "another shape": tensor.view(20, 30),
            "transposed": tensor.view(20, 30).t().contiguous().t(),
            "with a gradient": tensor.clone().requires_grad_(),
            "double": tensor.double(),
            "a negative view": torch.complex(torch.zeros(600), -tensor).conj().imag,
            "a parameter": torch.nn.Parameter(tensor),
        }
        with torch.inference_mode():
            same["of inference"] = tensor.clone()
        for name, other in same.items():
            with self.subTest(name):
                self.assertEqual(codec.encode(other, KEY), frame)
        self.assertEqual(codec.encode(tensor, frame.key), frame)
        self.assertNotEqual(codec.encode(tensor, (1, 2, 3, 1)), frame)

    def test_without_a_key_are_fresh(self):
        codec = Codec("elastic:bits=3")
        keys = {codec.encode(gradient(10)).key for _ in range(100)}
        self.assertEqual(len(keys), 100)

    def test_of_half_precision_are_those_of_its_values(self):
        for dtype in (torch.float16, torch.bfloat16):
            tensor = gradient(500).to(dtype)
            frame = Codec("dither:bits=3").encode(tensor, KEY)
            self.assertEqual(frame, Codec("dither:bits=3").encode(tensor.float(), KEY))
            self.assertTrue(torch.equal(Codec("fp32").encode(tensor).decode(), tensor.float()))

    def test_of_matrices_follow_their_shape(self):
        # A matrix of rank one: atomo-svd needs one factor for it if it is told the shape.
        matrix = torch.outer(torch.arange(1.0, 31.0), torch.arange(1.0, 51.0))
        codec = Codec("atomo-svd:rank=1")
        by_shape, flat = codec.encode(matrix, KEY), codec.encode(matrix.flatten(), KEY)
        self.assertNotEqual(by_shape, flat)
        error = (by_shape.decode(out=torch.empty(30, 50)) - matrix).norm() / matrix.norm()
        self.assertLess(error, 1e-2)
        # A convolution of rank one as the matrix of pairs of kernels that ATOMO's authors make.
        kernels = torch.outer(torch.arange(1.0, 65.0), torch.arange(1.0, 19.0))
        pairs = Codec("atomo-svd:rank=1,convolutions=pairs").encode(
            kernels.view(16, 8, 3, 3), KEY
        )
        error = (pairs.decode() - kernels.flatten()).norm() / kernels.norm()
        self.assertLess(error, 1e-6)


class RoundTripTest(unittest.TestCase):
    def test_keeps_what_the_class_promises(self):
        tensor = gradient()
        for spec in single_message_specs():
            codec = Codec(spec)
            check = getattr(self, f"check_{codec.codec_class}")
            with self.subTest(spec):
                check(codec, tensor)

    def check_lossless(self, codec, tensor):
        self.assertTrue(torch.equal(codec.encode(tensor, KEY).decode(), tensor))

    def check_unbiased(self, codec, tensor):
        count = 100
        mean, squared = torch.zeros(tensor.shape, dtype=torch.float64), 0.0
        for message in range(count):
            error = codec.encode(tensor, (1, 2, 3, message)).decode().double() - tensor
            mean += error / count
            squared += error.square().sum().item() / count
        # Independent errors average out; a bias would stay, at `squared` or near it.
        self.assertLess(mean.square().sum().item(), 3 * squared / count + 1e-12)
        bound = codec.nmse_bound(tensor.numel())
        if bound is not None:  # which randomk's expectation is
            self.assertLess(squared, 1.3 * bound * tensor.square().sum().item() + 1e-12)

    def check_contractive(self, codec, tensor):
        error = codec.encode(tensor, KEY).decode() - tensor
        bound = codec.nmse_bound(tensor.numel())
        self.assertLess(bound, 1)
        self.assertLessEqual(
            error.square().sum().item(), bound * tensor.square().sum().item() * (1 + 1e-6)
        )

    def check_biased(self, codec, tensor):
        decoded = codec.encode(tensor, KEY).decode()
        self.assertEqual(decoded.shape, tensor.shape)
        self.assertGreater(torch.dot(decoded, tensor).item(), 0)

    def test_of_nasty_values(self):
        tiny = torch.tensor([1e-45, -1e-40, 2e-38, 0.0, -0.0])
        inputs = {
            "empty": torch.empty(0),
            "of no dimension": torch.tensor(2.5),
            "one value": torch.tensor([-3.0]),
            "zeros": torch.zeros(777),
            "subnormal": tiny,
            "of all sizes": torch.tensor([1e-30, 1.0, -1e15, 1e-10]),
            "expanded": torch.tensor([1.0]).expand(100),
            "empty matrix": torch.empty(0, 5),
        }
        for name, tensor in inputs.items():
            for spec in single_message_specs():
                with self.subTest(spec=spec, tensor=name):
                    codec = Codec(spec)
                    frame = codec.encode(tensor, KEY)
                    self.assertLessEqual(frame.nbytes, codec.max_frame_bytes(tensor.numel()))
                    decoded = frame.decode()
                    self.assertEqual(decoded.shape, (tensor.numel(),))
                    self.assertTrue(torch.isfinite(decoded).all())
                    if name == "zeros":
                        self.assertEqual(decoded.abs().max(), 0)


class RefusalTest(unittest.TestCase):
    def setUp(self):
        self.codec = Codec("dither:bits=2")

    def test_of_values_out_of_range(self):
        with self.assertRaisesRegex(RuntimeError, "out of range: .* coordinate 1"):
            Codec("eden").encode(torch.tensor([1.0, 1e38] * 128))  # of 256, a block

    def test_of_wrong_specs(self):
        for spec, words in (
            ("dithr", "valid: fp32"),
            ("dither:bit=2", "bits"),
            ("elastic|zip", "rans"),
            ("", "codec"),
        ):
            with self.subTest(spec), self.assertRaisesRegex(ValueError, words):
                Codec(spec)

    def test_of_what_is_not_finite(self):
        for value in (float("nan"), float("inf"), -float("inf")):
            tensor = gradient(100)
            tensor[41] = value
            with self.assertRaisesRegex(NonFiniteError, "coordinate 41"):
                self.codec.encode(tensor)
        self.assertTrue(issubclass(NonFiniteError, ValueError))

    def test_of_doubles_beyond_fp32(self):
        infinity = float("inf")
        for encode in (self.codec.encode, Codec("topk|ef").stream().encode):
            for values, words in (
                ([1.0, 1e300, infinity], r"coordinate 1 is 1e\+300, beyond fp32"),
                ([1.0, -infinity, 1e300], "-inf"),
            ):
                with self.subTest(words), self.assertRaisesRegex(NonFiniteError, words):
                    encode(torch.tensor(values, dtype=torch.float64))

    def test_of_more_values_than_a_frame_holds(self):
        for n in (2**32, 2**62, 2**64 - 1):
            with self.subTest(n), self.assertRaisesRegex(ValueError, r"2\^32 - 1"):
                self.codec.max_frame_bytes(n)
        self.assertGreater(self.codec.max_frame_bytes(2**32 - 1), 2**30)

    def test_of_tensors_without_floats(self):
        for tensor, words in (
            (torch.arange(3), r"\.float\(\)"),
            (torch.ones(3, dtype=torch.bool), r"\.float\(\)"),
            (torch.ones(3, dtype=torch.complex64), "floating point"),
            (torch.eye(3).to_sparse(), "to_dense"),
            (torch.empty(3, device="meta"), "meta"),
            ([1.0, 2.0], "torch.as_tensor"),
            (None, "torch.Tensor"),
        ):
            with self.subTest(words), self.assertRaisesRegex(TypeError, words):
                self.codec.encode(tensor)

    def test_of_wrong_keys(self):
        tensor = gradient(10)
        for key in (-1, 2**64, (1, 2, 3), (1, 2, 3, -4)):
            with self.subTest(key), self.assertRaises(ValueError):
                self.codec.encode(tensor, key)
        for key in (1.5, "1", (1, 2, 3, None)):
            with self.subTest(key), self.assertRaises(TypeError):
                self.codec.encode(tensor, key)
        self.assertEqual(self.codec.encode(tensor, 2**64 - 1).key, 2**64 - 1)

    def test_of_codecs_that_remember(self):
        for spec in ("topk|ef", "powersgd", "dither:bits=2|ef"):
            codec = Codec(spec)
            self.assertTrue(codec.state)
            with self.subTest(spec), self.assertRaisesRegex(ValueError, r"codec\.stream\(\)"):
                codec.encode(gradient(10))


class StreamTest(unittest.TestCase):
    def test_loses_nothing(self):
        stream = Codec("topk:ratio=0.05|ef").stream()
        given = sent = torch.zeros(2000)
        for step in range(10):
            tensor = torch.randn(2000, generator=torch.Generator().manual_seed(step))
            given = given + tensor
            sent = sent + stream.encode(tensor, (1, step, 0, 0)).decode()
        self.assertEqual(stream.messages, 10)
        residual = stream.state_dict()["memory"]["residual"]
        self.assertTrue(torch.allclose(sent + residual, given, atol=1e-4))
        self.assertGreater(
            (given - sent).abs().sum(), 100
        )  # so that there was something to lose

    def test_goes_on_where_it_was_saved(self):
        for spec in ("topk:ratio=0.05|ef", "dgc:ratio=0.1", "powersgd:rank=2"):
            with self.subTest(spec):
                whole, rest = Codec(spec).stream(), Codec(spec).stream()
                tensors = [gradient(3000).view(60, 50) * (step + 1) for step in range(4)]
                for step in (0, 1):
                    whole.encode(tensors[step], (1, step, 0, 0))
                with tempfile.TemporaryDirectory() as folder:
                    torch.save(whole.state_dict(), Path(folder, "state"))
                    rest.load_state_dict(torch.load(Path(folder, "state")))
                self.assertEqual(rest.messages, 2)
                for step in (2, 3):
                    key = (1, step, 0, 0)
                    self.assertEqual(
                        rest.encode(tensors[step], key), whole.encode(tensors[step], key)
                    )

    def test_without_memory_is_the_codec(self):
        codec = Codec("dither:bits=2")
        stream = codec.stream()
        self.assertEqual(stream.codec, codec)
        self.assertEqual(stream.encode(gradient(), KEY), codec.encode(gradient(), KEY))
        self.assertEqual(stream.state_dict()["memory"], {})

    def test_refuses_what_does_not_fit(self):
        stream = Codec("topk:ratio=0.5|ef").stream()
        poisoned = gradient(100)
        poisoned[3] = float("nan")
        with self.assertRaises(NonFiniteError):
            stream.encode(poisoned)
        self.assertEqual(stream.messages, 0)
        stream.encode(gradient(99))  # the first that is encoded says the shape
        with self.assertRaisesRegex(ValueError, r"\(99,\), not \(100,\)"):
            stream.encode(gradient(100))
        state = stream.state_dict()
        with self.assertRaisesRegex(ValueError, "topk:ratio=0.5"):
            Codec("topk:ratio=0.2|ef").stream().load_state_dict(state)
        for key in state:
            lacking = {name: value for name, value in state.items() if name != key}
            with self.assertRaisesRegex(ValueError, key):
                stream.load_state_dict(lacking)
        with self.assertRaisesRegex(ValueError, "residual"):
            stream.load_state_dict(state | {"memory": {}})
        with self.assertRaisesRegex(ValueError, "residual"):
            stream.load_state_dict(state | {"memory": {"residual": torch.zeros(98)}})
        self.assertTrue(
            torch.equal(stream.state_dict()["memory"]["residual"], state["memory"]["residual"])
        )

    def test_refuses_damaged_states_and_stays_as_it_was(self):
        stream = Codec("topk:ratio=0.5|ef").stream()
        stream.encode(gradient(20).view(4, 5), KEY)
        state = stream.state_dict()
        for damage in (
            {"spec": 5},
            {"spec": None},
            {"shape": (-4, -5)},
            {"shape": (4, -5)},
            {"shape": (2**32, 2**32)},
            {"shape": (2**62, 4, 20)},
            {"shape": (2**16, 2**16)},
            {"shape": (2**15, 2**15)},  # of 4 GiB, which the memory has not
            {"shape": (2**70,)},
            {"shape": "x"},
            {"shape": ("x", 5)},
            {"shape": 20},
            {"messages": -1},
            {"messages": 2**64},
            {"messages": "x"},
            {"messages": None},
            {"memory": 5},
            {"memory": None},
            {"memory": {"residual": 5}},
            {"memory": {"residual": torch.zeros(3)}},
            {"memory": {"residual": torch.zeros(20, dtype=torch.int32)}},
            {"memory": {"residual": torch.zeros(20, device="meta")}},
            {"memory": {"residual": torch.full((20,), float("nan"))}},
        ):
            with self.subTest(damage), self.assertRaises(ValueError):
                stream.load_state_dict(state | damage)
        after = stream.state_dict()
        self.assertEqual((after["shape"], after["messages"]), ((4, 5), 1))
        self.assertTrue(torch.equal(after["memory"]["residual"], state["memory"]["residual"]))
        stream.load_state_dict(state)

    def test_says_that_its_memory_overflows(self):
        stream = Codec("dgc:ratio=0.4").stream()
        tensor = torch.full((5,), 1e38)
        with self.assertRaisesRegex(NonFiniteError, "begin a new stream"):
            for step in range(8):
                stream.encode(tensor, step)


class ThreadsTest(unittest.TestCase):
    def test_share_a_codec(self):
        tensor = gradient(20_000)
        codec = Codec("elastic:bits=4|rans")
        expected = [codec.encode(tensor, message) for message in range(40)]
        found = [None] * len(expected)

        def work(first):
            for message in range(first, len(found), 8):
                frame = codec.encode(tensor, message)
                frame.decode()
                found[message] = frame

        threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, expected)

    def progress_of_another_thread(self, call):
        """Steps that another thread makes while call() runs, and no other time."""
        steps, stop = 0, threading.Event()

        def count():
            nonlocal steps
            while not stop.is_set():
                steps += 1
                time.sleep(1e-4)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(100)  # no thread is made to give up the GIL
        thread = threading.Thread(target=count)
        thread.start()
        try:
            before = steps
            call()
            return steps - before
        finally:
            stop.set()
            sys.setswitchinterval(interval)
            thread.join()

    def test_run_while_another_encodes_or_decodes(self):
        tensor = gradient(1 << 21)
        codec = Codec("elastic:bits=4|elias")
        frame = codec.encode(tensor, KEY)
        for call in (lambda: codec.encode(tensor), frame.decode):
            # On a busy machine the other thread may get no time during a call or two.
            progress = (self.progress_of_another_thread(call) for _ in range(1000))
            self.assertTrue(any(progress))
        self.assertEqual(self.progress_of_another_thread(lambda: sum(range(100_000))), 0)


class CodecTest(unittest.TestCase):
    def test_describes_itself(self):
        codec = Codec("dither")
        self.assertEqual((codec.spec, codec.name), ("dither:bits=2", "dither"))
        self.assertEqual((codec.codec_class, codec.exchange), ("unbiased", "two-phase"))
        self.assertEqual(codec.state, [])
        self.assertEqual(repr(codec), "Codec('dither:bits=2')")
        self.assertGreater(codec.nmse_bound(1000), 0)
        self.assertIsNone(Codec("signsgd").nmse_bound(1000))
        self.assertEqual(Codec("topk|ef").state, ["residual"])

    def test_is_a_value(self):
        codec = Codec("elastic:bits=4|rans")
        self.assertEqual(codec, Codec(codec.spec))
        self.assertEqual(len({codec, Codec(codec.spec), Codec("fp32")}), 2)
        self.assertNotEqual(codec, "elastic:bits=4|rans")
        self.assertEqual(pickle.loads(pickle.dumps(codec)), codec)

    def test_decodes_any_frame(self):
        frame = Codec("elastic:bits=4").encode(gradient(50))
        for given in (frame, bytes(frame), memoryview(frame)):
            self.assertTrue(torch.equal(Codec("fp32").decode(given), frame.decode()))
        out = torch.empty(5, 10)
        self.assertIs(Codec("fp32").decode(frame, out), out)
        with self.assertRaises(TypeError):
            Codec("fp32").decode(gradient(3))

    def test_are_listed(self):
        listed = {info.name: info for info in elastiquant.codecs()}
        self.assertGreaterEqual(set(listed), {"fp32", "elastic", "dither", "topk", "powersgd"})
        for info in listed.values():
            self.assertEqual(Codec(info.spec).name, info.name)
            self.assertTrue(info.summary)
        bits = {p.name: p for p in listed["dither"].parameters}["bits"]
        self.assertEqual(bits.default, "2")
        self.assertIn("rans", listed["elastic"].modifiers)


class PackageTest(unittest.TestCase):
    def test_reads_well(self):
        import pydoc

        text = pydoc.plain(pydoc.render_doc(elastiquant))
        for words in (
            "encode(self, tensor, key=None)",
            "decode(self, out=None)",
            "NonFiniteError",
        ):
            self.assertIn(words, text)
        self.assertEqual(str(inspect.signature(Codec("fp32").encode)), "(tensor, key=None)")
        for name in elastiquant.__all__:
            if name != "__version__":
                self.assertTrue(getattr(elastiquant, name).__doc__, name)

    def test_refuses_another_torch(self):
        from elastiquant._torch_version import check_torch

        check_torch("2.13.0+cpu", "2.13.1+cu130")
        with self.assertRaisesRegex(ImportError, r"built for torch 2\.12\.0.*no-build-isolat"):
            check_torch("2.12.0", "2.13.0+cpu")


if __name__ == "__main__":
    unittest.main()
