"""DiLoCo and LocalSGD: workers train alone for some steps, then average what came of them."""

from __future__ import annotations

import atexit
import collections
import copy
import json
import logging
import math
import os
import time
import types
import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from elastiquant import _core, _group, _state
from elastiquant._buffers import Buffers
from elastiquant._compress import _check_numbers, _layer, _specs, _uncompiled
from elastiquant._record import Record
from elastiquant._stats import LayerStats, Stats

_log = logging.getLogger("elastiquant")


class DiLoCo:
    """Lets workers train alone, and averages what came of it every so many steps.

        inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
        diloco = elastiquant.DiLoCo(model, inner, every=32)

    The training loop stays as it is. After `every` calls of inner.step() the pseudo-gradient of
    each parameter, anchor - local value, is averaged over the workers under the codec. The
    outer optimiser moves the anchor by the mean, as if it were a gradient, and all workers go
    on from there with the same bits. The state of the inner optimiser stays local.

    Collective: every worker of `group` makes one, with the same arguments but `weight`, before
    its first step. Parameters and buffers then become those of the group's worker 0.

    model: any module with dense fp32 parameters, on CPU or GPU (which are encoded on the
        host), compiled or not. If an island of workers shares each replica by DDP, give the DDP
        model and, as `group`, this rank's peers in the other islands: rank k of every island
        belongs to one group. All ranks of an island receive the same means.
    inner: the optimiser whose steps are counted.
    outer: one over all trained parameters of the model. None: SGD(lr=0.7, momentum=0.9,
        nesterov=True). Its gradients are set for its step only.
    every: inner steps between two averages of a parameter, at least 1.
    codec, exact, bucket_kib, measure_every, seed, threads, timeout, stall_timeout, link,
        exchange, down: as in compress(); measure_every counts rounds.
    fragments: parameters are dealt to so many fragments, in a stride, and these are sent at
        different steps, evenly spread over `every`. At most `every` and the number of
        parameters, and 64.
    delay: inner steps from sending to applying a mean, at most every / fragments (or `every`
        if eager). Training goes on while messages travel.
    mix: of local values that is kept on applying: local = mix * local + (1 - mix) * anchor, in
        [0, 1).
    eager: a worker goes on at once with its own part of the round's mean and the others' part
        of the mean before, while the round's mean takes the next round to come. It implies
        delay=every, and needs fragments=1 and mix=0.
    weight: how much this worker counts for, such as its number of samples; above 0.
    group: of workers that meet; None: the default group.

    Floating-point buffers are averaged with fragment 0, as fp32. Of batch normalisation the
    running mean becomes the mean, and the running variance the variance of all data (mean of
    var + mean^2, less the square of the mean of means). Integer buffers stay each worker's own.

    Where a worker's pseudo-gradient has a NaN or infinity, the round's work is lost: all
    workers go on from the anchor, and a warning in the log names the worker.

    As a context manager it calls finish() at the end, and close(). close() alone leaves the
    parameters local.

    Errors: ValueError for a bad argument, TypeError for parameters that are no dense fp32,
    RuntimeError if workers differ in their arguments. A lost worker raises
    torch.distributed.DistBackendError, which names it, from inner.step() of all others.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        outer: torch.optim.Optimizer | None = None,
        *,
        every: int = 32,
        codec: str = "dither:bits=1",
        exact: str = "1d",
        fragments: int = 1,
        delay: int = 0,
        mix: float = 0.0,
        eager: bool = False,
        weight: float = 1.0,
        group: dist.ProcessGroup | None = None,
        bucket_kib: int | None = None,
        measure_every: int = 1,
        seed: int = 0,
        threads: int = 1,
        timeout: float = 20.0,
        stall_timeout: float | None = 1800.0,
        link: str | None = None,
        exchange: str = "auto",
        down: str | None = None,
    ):
        o = types.SimpleNamespace(**{k: v for k, v in locals().items() if k != "self"})
        module = _uncompiled(model)
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module = module.module
        named = [
            (name.replace("_orig_mod.", ""), p)
            for name, p in module.named_parameters()
            if p.requires_grad
        ]
        self._names = [name for name, _ in named]
        self._parameters = [p for _, p in named]
        if eager and delay == 0:
            delay = every
        error: Exception | None = None
        try:
            self._check(o, delay)
            self._schedule = _core._RoundSchedule(every=every, fragments=fragments, delay=delay)
            self._outer = outer if outer is not None else self._default_outer()
            self._check_outer(inner)
        except Exception as e:  # the others must hear of it, or they would wait
            error = e
        alike = {k: getattr(o, k) for k in ("every", "codec", "exact", "fragments", "mix")}
        alike |= {k: getattr(o, k) for k in ("eager", "seed", "exchange", "down", "bucket_kib")}
        alike |= {"delay": delay}
        alike |= {"the parameters": [(n, tuple(p.shape)) for n, p in named]}
        meeting = _group.arrange(
            group, timeout, stall_timeout, link, alike, error, type(self).__name__
        )
        self._buffers = Buffers(module)
        weights: list[Any] = [float(weight)] * meeting.world_size
        if meeting.world_size > 1:
            dist.all_gather_object(weights, float(weight), group=group)
            self._start_alike(module, group)
        self._share = weights[meeting.rank] / sum(weights)
        self._fragments = fragments
        members = [list(range(f, len(named), fragments)) for f in range(fragments)]
        self._members = members
        self._engine = _core._FragmentEngine(
            meeting=meeting,
            parameters=[(n, p.shape) for n, p in named],
            fragments=[i % fragments for i in range(len(named))],
            scalars=self._buffers.size,
            codec=codec,
            exact=exact,
            exchange=exchange,
            down=down or "",
            bucket_elements=(bucket_kib or 128 * meeting.world_size) * 256,
            seed=seed,
            threads=threads,
            measure_every=measure_every,
            weights=[] if len(set(weights)) == 1 else weights,
        )
        self._rank = dist.get_rank()
        self._mix, self._eager = mix, eager
        self._step, self._rounds = 0, 0
        self._began = time.monotonic()
        self._anchor = [p.detach().clone() for p in self._parameters]
        self._own: list[torch.Tensor] = []
        self._own_state: dict[Any, Any] = {}
        self._last_sent: list[torch.Tensor] = []
        self._last_mean: list[torch.Tensor] = []
        if eager:
            self._own = [a.clone() for a in self._anchor]
            self._last_sent = [torch.zeros_like(a) for a in self._anchor]
            self._last_mean = [torch.zeros_like(a) for a in self._anchor]
        # By fragment under way: what has arrived, and why it is skipped, once waited for.
        self._arrived: dict[int, tuple[list[torch.Tensor], str]] = {}
        self._under_way: set[int] = set()
        self._hook = inner.register_step_post_hook(_AfterStep(self))
        inner._elastiquant_rounds = self  # lives as long as the optimiser at least
        self._inner = weakref.ref(inner)
        _open.add(self)

    def _default_outer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self._parameters, lr=0.7, momentum=0.9, nesterov=True)

    def _check(self, o: types.SimpleNamespace, delay: int) -> None:
        for name, p in zip(self._names, self._parameters, strict=True):
            if type(p.data).__name__ == "DTensor" or type(p).__name__ == "DTensor":
                raise TypeError(
                    f"{name!r} is a DTensor (FSDP, tensor parallelism): {type(self).__name__} "
                    "needs whole parameters on each worker, as DDP has them"
                )
            if p.dtype != torch.float32 or p.layout != torch.strided:
                raise TypeError(
                    f"{name!r} is {p.dtype}: keep parameters in dense torch.float32 and "
                    "train under torch.autocast"
                )
        _check_numbers(o)
        _specs(self._names, self._parameters, o.codec, o.exact, None)
        if o.link is not None:
            _core._check_link(o.link)
        if not self._parameters:
            raise ValueError("the model has no parameters to train")
        if not 0 <= o.mix < 1:
            raise ValueError(f"mix is {o.mix}; it must be in [0, 1)")
        if not (o.weight > 0 and math.isfinite(o.weight)):
            raise ValueError(f"weight is {o.weight}; it must be above 0 and finite")
        if not 1 <= o.fragments <= min(64, len(self._parameters)):
            raise ValueError(
                f"fragments is {o.fragments}; with {len(self._parameters)} parameters it can "
                f"be from 1 to {min(64, len(self._parameters))}"
            )
        if o.eager and (o.fragments != 1 or o.mix != 0 or delay != o.every):
            raise ValueError("eager needs fragments=1, mix=0 and delay=every, or no delay")
        if not o.eager and delay > o.every // o.fragments:
            raise ValueError(
                f"delay is {delay}; it can be at most every / fragments, "
                f"{o.every // o.fragments}"
            )

    def _check_outer(self, inner: torch.optim.Optimizer) -> None:
        if self._outer is inner:
            raise ValueError("outer must be another optimiser than inner")
        theirs = [p for group in self._outer.param_groups for p in group["params"]]
        if {id(p) for p in theirs} != {id(p) for p in self._parameters}:
            raise ValueError(
                "outer must have exactly the trained parameters of the model: "
                "torch.optim.SGD(model.parameters(), ...)"
            )

    def _start_alike(self, module: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
        source = dist.get_global_rank(group or dist.group.WORLD, 0)
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.data, src=source, group=group)

    @property
    def step(self) -> int:
        """Inner steps counted."""
        return self._step

    @property
    def rounds(self) -> int:
        """Means applied, each of one fragment, skipped ones included."""
        return self._rounds

    @property
    def codecs(self) -> dict[str, str]:
        """The spec of each parameter by its name."""
        return dict(zip(self._names, self._engine.specs(), strict=True))

    @property
    def exchange(self) -> str:
        """How means come about: see compress(exchange=...)."""
        return self._engine.exchange()

    def anchor(self) -> dict[str, torch.Tensor]:
        """The model that all workers share, bit for bit: a copy of each parameter."""
        return {n: a.clone() for n, a in zip(self._names, self._anchor, strict=True)}

    @torch.no_grad()
    def _after_step(self) -> None:
        self._step += 1
        self._act(self._schedule.after(self._step))

    def _act(self, actions: list[tuple[str, int, int]]) -> None:
        for kind, fragment, number in actions:
            if kind == "send":
                self._send(fragment, number)
            else:
                self._apply(fragment)

    def _send(self, fragment: int, number: int) -> None:
        start = self._own if self._eager else self._anchor
        members = self._members[fragment]
        deltas = [start[i] - self._parameters[i] for i in members]
        self._engine.begin(
            fragment,
            number,
            [d.cpu().contiguous() for d in deltas]
            + (self._buffers.read() if fragment == 0 else []),
        )
        self._under_way.add(fragment)
        if self._eager:
            self._go_ahead(deltas)

    def _go_ahead(self, deltas: list[torch.Tensor]) -> None:
        """The outer step of an eager worker, of its own part of this round's mean and the
        others' of the round before."""
        updates = []
        for i, delta in enumerate(deltas):
            # The others are told of a NaN by what is sent; here it would stay for good.
            sent = delta if bool(delta.isfinite().all()) else torch.zeros_like(delta)
            updates.append(self._share * (sent - self._last_sent[i]) + self._last_mean[i])
            self._last_sent[i] = sent
            self._last_mean[i] = torch.zeros_like(delta)
        shared, self._outer.state = self._outer.state, _state_of(self._own_state)
        self._move(self._own, self._members[0], updates)
        self._own_state = dict(self._outer.state)
        self._outer.state = shared
        torch._foreach_copy_(self._parameters, self._own)

    def _arrive(self, fragment: int) -> None:
        """Waits for a mean that is under way."""
        if fragment not in self._under_way or fragment in self._arrived:
            return
        tensors = [torch.empty(self._parameters[i].shape) for i in self._members[fragment]]
        if fragment == 0:
            tensors += self._buffers.room()
        skipped = self._engine.finish(fragment, tensors)
        self._arrived[fragment] = (tensors, skipped)

    def _apply(self, fragment: int) -> None:
        self._arrive(fragment)
        tensors, skipped = self._arrived.pop(fragment)
        self._under_way.discard(fragment)
        self._rounds += 1
        members = self._members[fragment]
        if skipped:
            _log.warning("a round is lost, and workers go on from the anchor: %s", skipped)
        else:
            means = [
                t.to(self._parameters[i].device) for i, t in zip(members, tensors, strict=False)
            ]
            if self._eager:
                self._last_mean = [m.clone() for m in means]
            self._move(self._anchor, members, means)
            if fragment == 0:
                self._buffers.write(tensors[len(members) :], self._mix)
        if self._eager:
            return
        mix = 0.0 if skipped else self._mix
        for i in members:
            p = self._parameters[i]
            if mix == 0:
                p.copy_(self._anchor[i])
            else:
                p.mul_(mix).add_(self._anchor[i], alpha=1 - mix)

    def _move(
        self, anchor: list[torch.Tensor], members: list[int], means: list[torch.Tensor]
    ) -> None:
        """Lets the outer optimiser step from the anchor; local values stay as they are."""
        gradients = [p.grad for p in self._parameters]
        local = [self._parameters[i].detach().clone() for i in members]
        for p in self._parameters:
            p.grad = None  # optimisers pass over these
        for i, mean in zip(members, means, strict=True):
            self._parameters[i].copy_(anchor[i])
            self._parameters[i].grad = mean
        try:
            self._outer.step()
        finally:
            for p, gradient in zip(self._parameters, gradients, strict=True):
                p.grad = gradient
        for i, values in zip(members, local, strict=True):
            anchor[i].copy_(self._parameters[i])
            self._parameters[i].copy_(values)

    @torch.no_grad()
    def finish(self) -> None:
        """Collective, after the same step on all workers: applies what is under way, then
        averages what has changed since. All workers then have the anchor as parameters.

        Call it at the end of training: no rounds are counted on from here.
        """
        self._act(self._schedule.at_end(self._step))
        torch._foreach_copy_(self._parameters, self._anchor)
        self._detach()

    def stats(self) -> Stats:
        """Sums since the last reset, of this worker; a step is a fragment's mean."""
        return Stats(**self._engine.stats())

    def reset_stats(self) -> None:
        """Begins the sums of stats() and layers() anew."""
        self._engine.reset_stats()

    def layers(self) -> list[LayerStats]:
        """The measured variance of each compressed layer, and of all ('' last)."""
        return [_layer(json.loads(line)) for line in self._engine.layers()]

    def summary(self) -> str:
        """stats() in a line, whose steps are rounds."""
        return f"{self._rounds} rounds, {self.stats().summary()}".replace(
            "up a step", "up a round"
        )

    def record(self, path: str | os.PathLike, step: int) -> None:
        """Appends stats() and layers() to a file that elastiquant.report(path) draws."""
        seconds = time.monotonic() - self._began
        Record(step, seconds, self.stats(), tuple(self.layers())).append_to(path)

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """What must be saved, beside the model's and the inner optimiser's state, for training
        to go on as it would have, to the bit.

        It waits for means that are under way. Keys begin with the worker's rank, because states
        differ from worker to worker: save each one's own.
        """
        for fragment in list(self._under_way):
            self._arrive(fragment)
        state = _state.pack(self._engine.save_state(), self._rank)
        own: dict[str, Any] = {
            "settings": self._settings(),
            "counters": torch.tensor([self._step, self._rounds]),
            "outer": copy.deepcopy(self._outer.state_dict()),
        }
        fields = {"anchor": self._anchor, "own": self._own}
        fields |= {"last_sent": self._last_sent, "last_mean": self._last_mean}
        for field, tensors in fields.items():
            for name, tensor in zip(self._names, tensors, strict=False):
                own[f"{field}/{name}"] = tensor.clone()
        if self._eager:
            shared, self._outer.state = self._outer.state, _state_of(self._own_state)
            own["own-outer"] = copy.deepcopy(self._outer.state_dict())
            self._outer.state = shared
        for fragment, (tensors, skipped) in self._arrived.items():
            own[f"skipped/{fragment}"] = skipped
            for i, tensor in enumerate(tensors):
                own[f"mean/{fragment}/{i}"] = tensor.clone()
        return state | {f"rank{self._rank}/rounds/{k}": v for k, v in own.items()}

    def _settings(self) -> str:
        return json.dumps(
            dict(zip(("every", "fragments", "delay"), self._schedule.options(), strict=True))
            | {"mix": self._mix, "eager": self._eager}
        )

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what state_dict() gave. Load the model's and the inner optimiser's too.

        Errors: CorruptFrameError naming what differs (rank, number of workers, parameters,
        codecs, schedule) or is missing; nothing has changed then.
        """
        if self._under_way - self._arrived.keys():
            raise RuntimeError("load a state before the first step, or after finish()")
        prefix = f"rank{self._rank}/rounds/"
        own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        rest = {k: v for k, v in state.items() if "/rounds/" not in k}
        sections = _state.unpack(rest, self._rank)
        fields = {"anchor": self._anchor, "own": self._own}
        fields |= {"last_sent": self._last_sent, "last_mean": self._last_mean}
        needed = ["settings", "counters", "outer", *(["own-outer"] if self._eager else [])]
        needed += [
            f"{f}/{n}"
            for f, ts in fields.items()
            for n, _ in zip(self._names, ts, strict=False)
        ]
        for key in needed:
            if key not in own:
                raise _core.CorruptFrameError(f"the state has no {prefix}{key}")
        if own["settings"] != self._settings():
            raise _core.CorruptFrameError(
                f"the state is of other rounds: {own['settings']}, and these are "
                f"{self._settings()}"
            )
        self._engine.load_state(sections)
        for field, tensors in fields.items():
            for name, tensor in zip(self._names, tensors, strict=False):
                tensor.copy_(own[f"{field}/{name}"])
        if self._eager:
            self._outer.load_state_dict(copy.deepcopy(own["own-outer"]))
            self._own_state = dict(self._outer.state)
        self._outer.load_state_dict(copy.deepcopy(own["outer"]))
        self._step, self._rounds = (int(n) for n in own["counters"])
        self._arrived = {}
        for key, skipped in own.items():
            if key.startswith("skipped/"):
                fragment = int(key.removeprefix("skipped/"))
                count = sum(k.startswith(f"mean/{fragment}/") for k in own)
                tensors = [own[f"mean/{fragment}/{i}"].clone() for i in range(count)]
                self._arrived[fragment] = (tensors, skipped)
        self._under_way = set(self._arrived)

    def close(self) -> None:
        """Removes the hook and ends communication, after what is under way has arrived. The
        parameters stay local. Happens at exit by itself."""
        self._close("it closed its rounds", error="")

    def _close(self, farewell: str, error: str) -> None:
        self._detach()
        try:
            for fragment in list(self._under_way) if not error else []:
                self._arrive(fragment)
        except (RuntimeError, ValueError):
            pass  # another worker was lost, or this is closed: nobody waits for the mean
        self._engine.close(farewell, error)

    def _detach(self) -> None:
        self._hook.remove()
        inner = self._inner()
        if inner is not None and getattr(inner, "_elastiquant_rounds", None) is self:
            del inner._elastiquant_rounds

    def __enter__(self) -> DiLoCo:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self.finish()
            self.close()
        else:
            self._close("its training failed", f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"<elastiquant.{type(self).__name__}: {self.summary()}>"


class LocalSGD(DiLoCo):
    """Local SGD (FedAvg with `weight`): now and then the workers' models are averaged.

        elastiquant.LocalSGD(model, inner, every=32)

    It is DiLoCo whose outer optimiser is SGD with a learning rate of 1 and no momentum, and
    takes the same options and raises the same errors.
    """

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer, **options: Any):
        if "outer" in options:
            raise ValueError("LocalSGD has no outer optimiser: use DiLoCo for one")
        super().__init__(model, inner, **options)

    def _default_outer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self._parameters, lr=1.0)


def _state_of(state: Mapping[Any, Any]) -> Any:
    """As an optimiser keeps it."""
    return collections.defaultdict(dict, state)


class _AfterStep:
    """A hook of the optimiser, which does not keep the rounds alive, and goes along with an
    optimiser that is pickled or copied without doing anything there."""

    def __init__(self, rounds: DiLoCo | None = None):
        self._rounds = weakref.ref(rounds) if rounds is not None else None

    def __call__(self, *_: Any) -> None:
        rounds = self._rounds() if self._rounds is not None else None
        if rounds is not None:
            rounds._after_step()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _AfterStep, ()


# Threads of C++ must not outlive the interpreter.
_open: weakref.WeakSet[DiLoCo] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for rounds in list(_open):
        rounds._close(_group.SCRIPT_ENDED, _group.unhandled_error())
