"""Batches of CIFAR-10's files, and of random images in their place."""

import pathlib
import tempfile
import unittest

import torch
from images import Images

RECORD = 1 + 3 * 32 * 32


class ImagesTest(unittest.TestCase):
    def test_random_images_need_no_folder_and_have_no_accuracy(self):
        images, labels = Images(None, rank=0, world_size=2, batch=3).next()
        self.assertEqual(images.shape, (3, 3, 32, 32))
        self.assertEqual(labels.shape, (3,))
        self.assertIsNone(Images(None, 0, 2, 3).test(torch.nn.Identity()))

    def test_workers_share_the_images_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            of_labels = b"".join(bytes([label]) + bytes(RECORD - 1) for label in range(10))
            path = pathlib.Path(folder)
            (path / "data_batch_1.bin").write_bytes(of_labels)
            (path / "test_batch.bin").write_bytes(of_labels)
            second = Images(path, rank=1, world_size=2, batch=4)
            self.assertEqual(second.labels.tolist(), [1, 3, 5, 7, 9])
            always_3 = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
            with torch.no_grad():
                always_3[1].weight.zero_()
                always_3[1].bias.copy_(torch.arange(10) == 3)
            self.assertEqual(second.test(always_3), 10)


if __name__ == "__main__":
    unittest.main()
