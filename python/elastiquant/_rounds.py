"""DiLoCo and LocalSGD: workers train alone for some steps, then average what came of them."""

from __future__ import annotations

import dataclasses
import logging
import types
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from elastiquant import (
    _core,
    _fragments,
    _group,
    _metric,
    _model,
    _options,
    _rounds_options,
    _state,
)
from elastiquant._after_step import AfterStep
from elastiquant._ahead import Ahead
from elastiquant._buffers import Buffers
from elastiquant._outer import Outer
from elastiquant._progress import Checkpoint, Progress
from elastiquant._same_round import SameRound, place_of
from elastiquant._session import Rounds
from elastiquant._stats import Stats

_log = logging.getLogger("elastiquant")

_Named = list[tuple[str, torch.nn.Parameter]]


class DiLoCo(Rounds):
    """Lets workers train alone, and averages what came of it every so many steps.

        inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
        diloco = elastiquant.DiLoCo(model, inner, every=32)

    The training loop stays as it is. After `every` calls of inner.step() the pseudo-gradient of
    each parameter, anchor - local value, is averaged over the workers under the codec. The
    outer optimiser moves the anchor by the mean, as if it were a gradient, and all workers go
    on from there with the same bits. The state of the inner optimiser stays local. All workers
    must make the same number of inner steps: a GradScaler, which skips some on single workers,
    must not be used, and the log warns of one. Use bf16.

    Collective: every worker of `group` makes one, with the same arguments but `weight`, before
    its first step. Parameters and buffers then become those of the group's worker 0. They are
    the anchor from which training goes on: load weights to begin with before you make it.

    model: any module with dense fp32 parameters, on CPU or GPU (which are encoded on the
        host), compiled or not. If an island of workers shares each replica by DDP, give the DDP
        model and, as `group`, this rank's peers in the other islands: rank k of every island
        belongs to one group. All ranks of an island receive the same means.
    inner: the optimiser whose steps are counted, wrapped by Accelerate or not.
    outer: one over all trained parameters of the model. None: SGD(lr=0.7, momentum=0.9,
        nesterov=True). Its gradients are set for its step only.
    every: inner steps between two averages of a parameter, at least 1.
    codec, exact, bucket_kib, measure_every, seed, threads, timeout, stall_timeout, link,
        exchange, down: as in compress(); measure_every counts rounds.
    fragments: layers are dealt to so many fragments, which are sent at different steps, evenly
        spread over `every`: from the largest layer to the smallest, each to the fragment with
        the fewest values so far. A layer is a module with its weights and biases; one without a
        matrix, such as a norm, goes with the module before it. At most `every`, the number of
        layers, and 64.
    delay: inner steps from sending to applying a mean, at most every / fragments (or `every`
        if eager), and less than `every` unless there is a mix. Training goes on while messages
        travel.
    mix: of local values that is kept on applying: local = mix * local + (1 - mix) * anchor, in
        [0, 1).
    eager: a worker goes on at once with its own part of the round's mean and the others' part
        of the mean before, while the round's mean takes the next round to come. It implies
        delay=every, and needs fragments=1 and mix=0.
    on_loss: what the others do if a worker is lost, because its machine, its network or its
        script has ended. "stop": they raise an error that names it. "go-on": they average
        without it from the round on in which it was lost, whose means are the same on all of
        them, and say so in the log. It must not be worker 0, which they meet at, and it does
        not come back. Needs delay=0, a codec other than "powersgd", and no island of DDP
        workers, as each of these would decide for itself which workers a mean is of.
    weight: how much this worker counts for, such as its number of samples; above 0.
    group: of workers that meet; None: the default group.

    Floating-point buffers are averaged with fragment 0, as fp32. Of batch normalisation the
    running mean becomes the mean, and the running variance the variance of all data (the mean
    of the variances, and the variance between the means). To a mean that comes later than it
    was sent, each worker adds what its own buffers have changed by since. Integer buffers stay
    each worker's own, and so do those with persistent=False (caches) and those that are not
    finite at the start (masks of -inf).

    Where a worker's pseudo-gradient or buffer has a NaN or infinity, the round's work is lost:
    all workers go on from the anchor, and a warning in the log names the worker and what it is
    in.

    As a context manager it calls finish() at the end, and close(). close() alone leaves the
    parameters local.

    Errors: ValueError for a bad argument, such as an optimiser that another DiLoCo, LocalSGD
    or Gossip follows, or a codec with momentum, the learning rate or levels of its own (dgc,
    efsign|ef, alq, amq); TypeError for an argument of another type and for parameters that
    are no dense fp32; RuntimeError if workers differ in their arguments or, from
    inner.step(), go on from states of different rounds, if weights have changed before the
    first step and no state was loaded, or if a parameter is trained that was not at the start.
    Unless the others go on, a lost worker raises torch.distributed.DistBackendError, which
    names it, from inner.step() of all others. If they do, one that was only frozen raises it
    when it wakes up.
    """

    _farewell = "it closed its rounds"
    _kind = "DiLoCo"  # by which a state is told from LocalSGD's

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
        on_loss: str = "stop",
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
        inner, outer = _options.followed(inner), _options.followed(outer)
        o = types.SimpleNamespace(**{k: v for k, v in locals().items() if k != "self"})
        if eager and delay == 0:
            o.delay = every
        named: _Named = []
        alike: dict[str, Any] = {}
        error: Exception | None = None
        try:
            named = self._trained(o)
            self._names = [name for name, _ in named]
            self._parameters = [p for _, p in named]
            self._schedule, self._outer = self._checked(o, named)
            alike = _alike(o, named, self._outer)
        except Exception as e:  # the others must hear of it, or they would wait
            error = e
        with _group.on_device_of(p for _, p in named):
            meeting = _group.arrange(
                group, timeout, stall_timeout, link, alike, error, type(self).__name__
            )
            weights = _weights(o, meeting)
        self._module = module = _model.inner_module(model)
        if meeting.world_size > 1:
            _model.start_alike(module, group)
        self._buffers = Buffers(module)
        self._members = _fragments.deal(named, fragments)
        engine = _engine(o, named, self._members, self._buffers.size, meeting, weights)
        self._same_round = SameRound(meeting, place_of(0, 0))
        self._rank = dist.get_rank()
        self._mix, self._finished = mix, False
        anchor = [p.detach().clone() for p in self._parameters]
        ahead = Ahead(anchor, weights[meeting.rank] / sum(weights)) if eager else None
        self._progress = Progress(anchor, ahead, self._buffers.reference)
        self._checkpoint = Checkpoint(
            self._names,
            self._members,
            self._buffers.size,
            self._schedule,
            {"kind": self._kind, "mix": float(mix), "eager": bool(eager)},
            _fragments.digest(named, self._members) if fragments > 1 else "",
        )
        self._has_begun = False
        self._of_inner = set(_metric.groups_of([inner]))
        hooks = [
            inner.register_step_pre_hook(AfterStep(self._before_step)),
            inner.register_step_post_hook(AfterStep(self._after_step)),
        ]
        self._follow(inner, hooks)
        self._open(engine)

    def _trained(self, o: types.SimpleNamespace) -> _Named:
        """The parameters to train; raises what is wrong with the model and the optimiser."""
        call = f"{type(self).__name__}(model, inner, ...)"
        _options.check_followed(o.model, o.inner, "inner", call)
        self._check_free(o.inner)
        return _model.trained(_model.inner_module(o.model))

    def _checked(
        self, o: types.SimpleNamespace, named: _Named
    ) -> tuple[_core._RoundSchedule, Outer]:
        """Raises what is wrong with a worker's own arguments."""
        _rounds_options.check(o, dict(named), type(self).__name__)
        schedule = _core._RoundSchedule(every=o.every, fragments=o.fragments, delay=o.delay)
        optimizer = o.outer if o.outer is not None else self._default_outer()
        _rounds_options.check_outer(optimizer, o.inner, self._parameters)
        return schedule, Outer(self._parameters, optimizer)

    def _default_outer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self._parameters, lr=0.7, momentum=0.9, nesterov=True)

    @property
    def step(self) -> int:
        """Inner steps counted."""
        return self._progress.step

    @property
    def rounds(self) -> int:
        """Means applied, each of one fragment, skipped ones included."""
        return self._progress.rounds

    @property
    def codecs(self) -> dict[str, str]:
        """The spec of each parameter by its name."""
        return dict(zip(self._names, self._engine.specs(), strict=True))

    @property
    def exchange(self) -> str:
        """How means come about: see compress(exchange=...)."""
        return self._engine.exchange()

    def stats(self) -> Stats:
        stats = super().stats()
        reason = self._buffers.named_in(stats.skip_reason)
        return dataclasses.replace(stats, skip_reason=reason)

    def anchor(self) -> dict[str, torch.Tensor]:
        """The model that all workers share, bit for bit: a copy of each parameter."""
        named = zip(self._names, self._progress.anchor, strict=True)
        return {name: tensor.clone() for name, tensor in named}

    @torch.no_grad()
    def _before_step(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._compare(self._check_start)

    def _check_start(self) -> None:
        """Raises RuntimeError if weights have changed since this was made. The first round
        would send that change, and the outer optimiser would go on in its direction. What inner
        does not move may be another optimiser's, which has made its step already."""
        known = zip(self._names, self._parameters, self._progress.anchor, strict=True)
        for name, p, anchor in known:
            # Of what is not finite the round itself tells.
            if p in self._of_inner and bool((p.isfinite() & (p != anchor.to(p))).any()):
                kind = type(self).__name__
                raise RuntimeError(
                    f"the parameter {name!r} has changed since this {kind} was made, and no "
                    f"step was made: load weights to begin with before you make a {kind}. To "
                    "go on from a checkpoint, load its state too, by load_state_dict()"
                )

    @torch.no_grad()
    def _after_step(self) -> None:
        self._look_for_scaler()
        self._progress.step += 1
        self._act(self._schedule.after(self._progress.step))

    def _act(self, actions: list[tuple[str, int, int]]) -> None:
        for kind, fragment, _ in actions:
            if kind == "send":
                self._send(fragment)
            elif fragment in self._progress.under_way:  # else finish() has applied it
                self._apply(fragment)

    def _send(self, fragment: int) -> None:
        self._compare(lambda: self._check_trained(self._module))
        self._compare(self._same_round.tell)
        progress = self._progress
        start = progress.anchor if progress.ahead is None else progress.ahead.own
        deltas = [start[i] - self._parameters[i] for i in self._members[fragment]]
        tensors = [d.cpu().contiguous() for d in deltas]
        if fragment == 0:
            progress.sent_buffers = self._buffers.read()
            tensors += progress.sent_buffers
        # A number that no other average of the fragment has: one was applied since the last.
        self._engine.begin(fragment, progress.rounds, tensors)
        progress.under_way.add(fragment)
        if progress.ahead is not None:
            progress.ahead.go(deltas, self._outer)
            torch._foreach_copy_(self._parameters, progress.ahead.own)

    def _arrive(self, fragment: int) -> None:
        """Waits for a mean that is under way."""
        if fragment in self._progress.arrived:
            return
        tensors = [
            torch.empty(self._parameters[i].shape, dtype=torch.float32, device="cpu")
            for i in self._members[fragment]
        ]
        if fragment == 0:
            tensors += self._buffers.room()
        skipped = self._buffers.named_in(self._engine.finish(fragment, tensors))
        self._tell_losses()
        self._compare(lambda: self._same_round.check(self.lost))
        self._progress.arrived[fragment] = (tensors, skipped)

    def _apply(self, fragment: int) -> None:
        self._arrive(fragment)
        progress, members = self._progress, self._members[fragment]
        tensors, skipped = progress.arrived.pop(fragment)
        progress.under_way.discard(fragment)
        progress.rounds += 1
        if skipped:
            _log.warning("a round is lost, and workers go on from the anchor: %s", skipped)
        self._count_lost(bool(skipped), f"rounds were lost: {skipped}")
        if not skipped:
            means = [
                t.to(self._parameters[i].device) for i, t in zip(members, tensors, strict=False)
            ]
            if progress.ahead is not None:
                progress.ahead.last_mean = [m.clone() for m in means]
            self._outer.move(progress.anchor, members, means)
            if fragment == 0:
                # A mean that is late says nothing of the steps made since it was sent.
                self._buffers.write_late(tensors[len(members) :], progress.sent_buffers)
        if progress.ahead is None:
            self._take_over(members, 0.0 if skipped else self._mix)

    def _take_over(self, members: list[int], mix: float) -> None:
        for i in members:
            p, anchor = self._parameters[i], self._progress.anchor[i]
            if mix == 0:
                p.copy_(anchor)
            else:
                p.mul_(mix).add_(anchor, alpha=1 - mix)

    @torch.no_grad()
    def finish(self) -> None:
        """Collective, after the same step on all workers: applies what is under way, then
        averages what has changed since. All workers then have the anchor as parameters, and
        an eager worker goes back to it too.

        Call it at the end of training: no rounds are counted on from here. To call it again
        does nothing. A state that is saved now leads to training that goes on from the anchor.
        """
        if self._finished:
            return
        self._act(self._schedule.at_end(self._progress.step))
        torch._foreach_copy_(self._parameters, self._progress.anchor)
        if self._progress.ahead is not None:
            self._progress.ahead.settle(self._progress.anchor, self._outer)
        self._finished = True
        self._detach()

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """What must be saved, beside the model's and the inner optimiser's state, for training
        to go on as it would have, to the bit.

        It waits for means that are under way. Keys begin with the worker's rank, because states
        differ from worker to worker: save each one's own by torch.save(). From
        torch.distributed.checkpoint a new DiLoCo gets no outer momentum, and refuses the state.
        """
        for fragment in self._progress.under_way:
            self._arrive(fragment)
        state = _state.pack(self._engine.save_state(), self._rank)
        own = self._checkpoint.save(self._progress, self._outer)
        return state | {f"rank{self._rank}/rounds/{key}": value for key, value in own.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what state_dict() gave. Load the model's and the inner optimiser's too,
        when this is made: between two rounds workers have weights of their own, and to make it
        gives them the same ones. (Weights without a state are loaded before it is made.)

        All workers load, between the same steps, what they have saved after the same step. They
        compare that before the next round: if they differ, RuntimeError from inner.step() names
        their rounds, on all of them (as DistBackendError where another one has found it).

        Errors: CorruptFrameError naming what differs (rank, number of workers, parameters,
        their shapes, codecs, DiLoCo or LocalSGD, schedule, kind of outer optimiser), is
        missing, or is there and unknown; nothing has changed then. RuntimeError while a mean is
        under way, and after finish().
        """
        if self._finished:
            raise RuntimeError(
                f"this {type(self).__name__} has finished and counts no steps: make another one"
            )
        if self._progress.under_way - self._progress.arrived.keys():
            raise RuntimeError("a mean is under way: load a state before the first step")
        prefix = f"rank{self._rank}/rounds/"
        own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        rest = {k: v for k, v in state.items() if "/rounds/" not in k}
        sections = _state.unpack(rest, self._rank)
        self._checkpoint.check(own, self._progress, self._outer)
        self._engine.load_state(sections)
        self._checkpoint.load(own, self._progress, self._outer)
        self._has_begun = True
        self._same_round.start(place_of(self._progress.step, self._progress.rounds))

    def close(self) -> None:
        """Removes the hook and ends communication, after what is under way has arrived. The
        parameters stay local. Happens at exit by itself."""
        super().close()

    def _close(self, farewell: str, error: str) -> None:
        self._detach()
        try:
            for fragment in self._progress.under_way if not error else ():
                self._arrive(fragment)
        except (RuntimeError, ValueError):
            pass  # another worker was lost, or this is closed: nobody waits for the mean
        super()._close(farewell, error)


def _alike(o: types.SimpleNamespace, named: _Named, outer: Outer) -> dict[str, Any]:
    """What must be the same on all workers."""
    same = ("every", "codec", "exact", "fragments", "mix", "eager", "on_loss", "seed")
    same += ("exchange", "down", "bucket_kib", "delay")
    alike: dict[str, Any] = {k: getattr(o, k) for k in same}
    alike |= {"the parameters": _model.shapes(named)}
    alike |= _model.untrained(_model.inner_module(o.model))
    return alike | {"the outer optimiser": outer.settings()}


def _weights(o: types.SimpleNamespace, meeting: _group.Meeting) -> list[float]:
    """Collective: what each worker counts for."""
    weights = [float(o.weight)] * meeting.world_size
    if meeting.world_size > 1:
        dist.all_gather_object(weights, float(o.weight), group=o.group)
    return weights


def _engine(
    o: types.SimpleNamespace,
    named: _Named,
    members: list[list[int]],
    scalars: int,
    meeting: _group.Meeting,
    weights: list[float],
) -> _core._FragmentEngine:
    fragment_of = {i: fragment for fragment, of_it in enumerate(members) for i in of_it}
    return _core._FragmentEngine(
        meeting=meeting,
        parameters=_model.shapes(named),
        fragments=[fragment_of[i] for i in range(len(named))],
        scalars=scalars,
        codec=o.codec,
        exact=o.exact,
        exchange=o.exchange,
        down=o.down or "",
        bucket_elements=(o.bucket_kib or 128 * meeting.world_size) * 256,
        seed=o.seed,
        threads=o.threads,
        measure_every=o.measure_every,
        weights=[] if len(set(weights)) == 1 else weights,
        goes_on=o.on_loss == "go-on",
    )


class LocalSGD(DiLoCo):
    """Local SGD (FedAvg with `weight`): now and then the workers' models are averaged.

        elastiquant.LocalSGD(model, inner, every=32)

    It is DiLoCo whose outer optimiser is SGD with a learning rate of 1 and no momentum, and
    takes the same options and raises the same errors. Load weights to begin with before you
    make it.
    """

    _kind = "LocalSGD"

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer, **options: Any):
        if "outer" in options:
            raise ValueError("LocalSGD has no outer optimiser: use DiLoCo for one")
        super().__init__(model, inner, **options)

    def _default_outer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self._parameters, lr=1.0)
