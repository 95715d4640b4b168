"""elastiquant.Frame: bytes, decoding, and what it refuses."""

from __future__ import annotations

import copy
import math
import pickle
import unittest
from pathlib import Path

import torch

from elastiquant import Codec, CorruptFrameError, Frame

GOLDEN = Path(__file__).resolve().parents[3] / "testdata" / "golden"


def frame_of(n: int = 600, spec: str = "elastic:bits=4") -> Frame:
    tensor = torch.randn(n, generator=torch.Generator().manual_seed(3))
    return Codec(spec).encode(tensor, (1, 2, 3, 4))


def resealed(data: bytes) -> bytes:
    """A frame's bytes with the checksum, a CRC-32C at byte 12, that they ought to have."""
    crc = 0xFFFFFFFF
    for byte in data[:12] + bytes(4) + data[16:]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return data[:12] + (crc ^ 0xFFFFFFFF).to_bytes(4, "little") + data[16:]


class GoldenTest(unittest.TestCase):
    def test_frames_decode_to_their_values(self):
        import numpy

        files = sorted(GOLDEN.glob("*.eqf"))
        self.assertGreater(len(files), 100)
        for file in files:
            with self.subTest(file.name):
                expected = torch.from_numpy(numpy.load(file.with_suffix(".npy")))
                found = Frame.from_bytes(file.read_bytes()).decode()
                self.assertTrue(
                    torch.equal(found.view(torch.int32), expected.view(torch.int32))
                )


class BytesTest(unittest.TestCase):
    def test_go_out_and_in(self):
        frame = frame_of()
        data = bytes(frame)
        self.assertEqual((len(data), len(frame)), (frame.nbytes, frame.nbytes))
        view = memoryview(frame)
        self.assertTrue(view.readonly)
        self.assertEqual((view.format, view.nbytes, bytes(view)), ("B", frame.nbytes, data))
        padded = memoryview(b"xx" + data)
        for given in (frame, data, bytearray(data), view, padded[2:]):
            self.assertEqual(Frame.from_bytes(given), frame)

    def test_outlive_what_they_came_from(self):
        data = bytearray(bytes(frame_of()))
        frame = Frame.from_bytes(data)
        data[:] = bytes(len(data))  # the frame has bytes of its own
        self.assertEqual(frame, frame_of())
        view = memoryview(frame)
        del frame
        self.assertEqual(bytes(view), bytes(frame_of()))

    def test_travel_in_tensors(self):
        frame = frame_of()
        received = torch.frombuffer(bytearray(frame), dtype=torch.uint8)
        self.assertEqual(Frame.from_bytes(received.numpy()), frame)

    def test_that_are_damaged_are_refused(self):
        data = bytes(frame_of())
        for wrong in (
            b"",
            data[:10],
            data[:-1],
            data + b"x",
            data[:40] + bytes([data[40] ^ 1]) + data[41:],
            b"EQF9" + data[4:],
        ):
            with self.subTest(wrong[:8]), self.assertRaises(CorruptFrameError):
                Frame.from_bytes(wrong)
        self.assertTrue(issubclass(CorruptFrameError, ValueError))

    def test_of_other_builds_are_refused(self):
        data = bytes(frame_of())
        other_version = data[:4] + bytes([data[4] ^ 1]) + data[5:]
        with self.assertRaisesRegex(CorruptFrameError, "version check failed"):
            Frame.from_bytes(other_version)
        with self.assertRaisesRegex(CorruptFrameError, "no codec number 200"):
            Frame.from_bytes(resealed(data[:5] + bytes([200]) + data[6:]))

    def test_that_claim_too_much_are_refused(self):
        data = bytes(frame_of(600))
        self.assertEqual(Frame.from_bytes(data, max_elements=600).elements, 600)
        with self.assertRaisesRegex(ValueError, "claims 600 values.*raise max_elements"):
            Frame.from_bytes(data, max_elements=599)
        with self.assertRaisesRegex(ValueError, "claims 600 values.*raise max_elements"):
            Frame.from_bytes(frame_of(600), max_elements=599)
        with self.assertRaises(TypeError):
            Frame.from_bytes(data, 599)  # by its name only

    def test_of_other_kinds_are_refused(self):
        for wrong in ("text", 3, None, torch.zeros(3)):
            with self.subTest(wrong), self.assertRaises(TypeError):
                Frame.from_bytes(wrong)
        with self.assertRaises(BufferError):
            Frame.from_bytes(memoryview(bytes(frame_of()))[::2])

    def test_make_a_value(self):
        frame = frame_of()
        self.assertEqual(len({frame, frame_of(), frame_of(601)}), 2)
        self.assertNotEqual(frame, bytes(frame))
        for same in (pickle.loads(pickle.dumps(frame)), copy.copy(frame), copy.deepcopy(frame)):
            self.assertEqual(same, frame)
        with self.assertRaises(TypeError):
            Frame()


class DescriptionTest(unittest.TestCase):
    def test_says_what_it_is(self):
        frame = frame_of(1000, "dither:bits=2")
        self.assertEqual((frame.codec, frame.elements), ("dither", 1000))
        self.assertEqual(frame.bits_per_coordinate, 8 * frame.nbytes / 1000)
        self.assertRegex(
            repr(frame), r"<elastiquant.Frame dither: 1000 values in \d+ bytes, 2\.\d+ bits"
        )
        self.assertIsNone(frame_of().variance)

    def test_tells_the_variance(self):
        tensor = torch.randn(100_000, generator=torch.Generator().manual_seed(3))
        frame = Codec("dither:bits=2").encode(tensor, 7)
        error = (frame.decode() - tensor).square().mean().item()
        self.assertAlmostEqual(error / frame.variance, 1, delta=0.05)

    def test_of_nothing(self):
        frame = Codec("elastic").encode(torch.empty(0))
        self.assertTrue(math.isnan(frame.bits_per_coordinate))
        self.assertEqual(frame.decode().shape, (0,))
        self.assertNotIn("nan", repr(frame))


class DecodeTest(unittest.TestCase):
    def setUp(self):
        self.frame = frame_of()
        self.values = self.frame.decode()

    def test_into_any_floats(self):
        outs = {
            "flat": torch.full((600,), 9.0),
            "matrix": torch.full((20, 30), 9.0),
            "transposed": torch.full((30, 20), 9.0).t(),
            "strided": torch.full((600, 2), 9.0)[:, 1],
            "half": torch.full((600,), 9.0, dtype=torch.float16),
            "bfloat": torch.full((2, 300), 9.0, dtype=torch.bfloat16),
            "double": torch.full((600,), 9.0, dtype=torch.float64),
            "a gradient": torch.nn.Parameter(torch.zeros(600)).detach(),
        }
        with torch.inference_mode():
            outs["of inference"] = torch.full((600,), 9.0)
        for name, out in outs.items():
            with self.subTest(name), torch.inference_mode(name == "of inference"):
                self.assertIs(self.frame.decode(out), out)
                expected = self.values.view(out.shape).to(out.dtype)
                self.assertTrue(torch.equal(out, expected))

    def test_leaves_what_lies_between_alone(self):
        wide = torch.zeros(600, 2)
        self.frame.decode(out=wide[:, 1])
        self.assertEqual(wide[:, 0].abs().max(), 0)

    def test_is_seen_by_autograd(self):
        weight = torch.ones(600, requires_grad=True)
        out = torch.ones(600)
        loss = (weight * out).sum()
        self.frame.decode(out)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_refuses_other_outs(self):
        for out, error in (
            (torch.empty(599), ValueError),
            (torch.empty(600, requires_grad=True), ValueError),
            (torch.empty(600, dtype=torch.int64), TypeError),
            (torch.empty(600, device="meta"), TypeError),
            ([0.0] * 600, TypeError),
            (torch.zeros(1).expand(600), RuntimeError),
        ):
            with self.subTest(str(error)), self.assertRaises(error):
                self.frame.decode(out)
        with torch.no_grad():
            self.frame.decode(torch.empty(600, requires_grad=True))

    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_on_a_gpu(self):
        tensor = torch.randn(1000, device="cuda")
        frame = Codec("dither:bits=4").encode(tensor, 1)
        self.assertEqual(frame, Codec("dither:bits=4").encode(tensor.cpu(), 1))
        out = torch.empty(10, 100, device="cuda", dtype=torch.bfloat16)
        frame.decode(out)
        self.assertTrue(torch.equal(out.cpu().flatten(), frame.decode().bfloat16()))


if __name__ == "__main__":
    unittest.main()
