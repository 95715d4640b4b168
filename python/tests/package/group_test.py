"""Which address a worker announces to the others."""

from __future__ import annotations

import os
import unittest
from unittest import mock

import torch
import torch.distributed as dist

from elastiquant import _collectives, _group


class AddressTest(unittest.TestCase):
    def setUp(self):
        without = mock.patch.dict(os.environ)
        without.start()
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
        self.addCleanup(without.stop)

    def with_routes(self, routes: dict[str, str]):
        """From which address packets go to a host."""
        towards = lambda host, port: routes.get(host, "")  # noqa: E731
        return mock.patch.object(_group, "_address_towards", towards)

    def test_it_is_the_one_towards_the_store(self):
        with self.with_routes({"10.0.0.1": "10.0.0.7", "192.0.2.1": "10.9.9.9"}):
            self.assertEqual(_group._own_address("10.0.0.1", 1234), "10.0.0.7")

    def test_it_is_no_loopback_address(self):
        """The name of the store's machine often stands for 127.0.1.1 on that machine."""
        for loopback in ("127.0.0.1", "127.0.1.1"):
            with self.with_routes({"node-0": loopback, "192.0.2.1": "10.0.0.7"}):
                self.assertEqual(_group._own_address("node-0", 1234), "10.0.0.7")
            with (
                self.with_routes({"node-0": loopback, "192.0.2.1": loopback}),
                self.assertRaisesRegex(RuntimeError, "GLOO_SOCKET_IFNAME"),
            ):
                _group._own_address("node-0", 1234)

    def test_it_is_that_of_the_interface_that_was_named(self):
        with self.with_routes({"node-0": "10.0.0.7"}):
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            self.assertEqual(_group._own_address("node-0", 1234), "127.0.0.1")
            os.environ["GLOO_SOCKET_IFNAME"] = "none0"
            with self.assertRaisesRegex(RuntimeError, "GLOO_SOCKET_IFNAME names 'none0'"):
                _group._own_address("node-0", 1234)

    def test_the_way_to_this_machine_is_loopback(self):
        self.assertEqual(_group._address_towards("127.0.0.1", 1234), "127.0.0.1")
        self.assertEqual(_group._address_towards("no.such.host.invalid", 1234), "")

    def test_processes_of_one_machine_are_told(self):
        self.assertEqual(_group._network(), _group._network())
        with mock.patch("os.stat", side_effect=OSError):
            self.assertTrue(_group._network())


class BackendTest(unittest.TestCase):
    def backend_of(self, name: str | None, device: str = "cpu") -> str:
        """In a group of one process."""
        dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)
        try:
            return _group.backend_of(dist.group.WORLD, torch.device(device))
        finally:
            dist.destroy_process_group()

    def test_a_group_has_it_by_device(self):
        """Where no backend is named, get_backend() says "undefined"."""
        self.assertEqual(self.backend_of(None), "gloo")
        self.assertEqual(self.backend_of("gloo"), "gloo")
        self.assertEqual(self.backend_of("cpu:gloo"), "gloo")

    def test_it_is_not_that_of_another_device(self):
        both = mock.patch.object(dist, "get_backend_config", return_value="cpu:gloo,cuda:nccl")
        with both:
            self.assertEqual(self.backend_of(None, "cpu"), "gloo")
            self.assertEqual(self.backend_of(None, "cuda:1"), "nccl")


class DeviceTest(unittest.TestCase):
    def test_objects_go_by_the_gpu_of_what_is_trained(self):
        on_gpu = mock.Mock(is_cuda=True, get_device=lambda: 3)
        for tensors, device in (
            ([torch.ones(1), on_gpu, mock.Mock(is_cuda=True, get_device=lambda: 4)], 3),
            ([torch.ones(1)], -1),  # which leaves it as it is
            ([], -1),
        ):
            with (
                mock.patch("torch.cuda._exchange_device", return_value=0) as enter,
                mock.patch("torch.cuda._maybe_exchange_device") as leave,
            ):
                with _group.on_device_of(iter(tensors)):
                    enter.assert_called_once_with(device)
                    leave.assert_not_called()
                leave.assert_called_once_with(0)

    def test_no_gpu_is_needed(self):
        with _group.on_device_of([torch.ones(1)]):
            pass

    def test_a_collective_waits_for_the_stream_that_makes_its_tensor(self):
        done = []
        stream = mock.Mock(synchronize=lambda: done.append("synchronize"))
        channel = object.__new__(_collectives._Channel)
        channel._workers = mock.Mock(all_reduce="all_reduce")
        channel._calls = mock.Mock(put=lambda call: done.append(call[1:]))
        on_gpu, on_cpu = mock.Mock(is_cuda=True, device="cuda:3"), torch.ones(1)
        with mock.patch("torch.cuda.current_stream", return_value=stream) as current:
            channel.submit("all_reduce", on_gpu, 1)
            channel.submit("all_reduce", on_cpu, 2)
        current.assert_called_once_with("cuda:3")
        expected = ["synchronize", ("all_reduce", (on_gpu, 1)), ("all_reduce", (on_cpu, 2))]
        self.assertEqual(done, expected)


if __name__ == "__main__":
    unittest.main()
