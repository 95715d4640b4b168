"""`python on_device OPTIONS`: see the package's docstring, or --help."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if not __package__:  # started by the folder's path
    # At the end: beside a build the package's sources lie there, too, without their module.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    sys.path.append(sys.path.pop(0))

try:
    import elastiquant  # noqa: F401
except ImportError as error:
    sys.exit(
        f"training on a GPU needs the package elastiquant in {sys.executable}, which cannot "
        f"import it ({error}): install it there (docs/pytorch.md), or name another --python"
    )
from elastiquant_testbed import stopping
from elastiquant_testbed.on_device import gossip, options
from elastiquant_testbed.on_device.allreduce import AllReduce
from elastiquant_testbed.on_device.rounds import LocalRounds
from elastiquant_testbed.on_device.training import prepare

TRAINERS = {
    options.ALLREDUCE: AllReduce,
    options.LOCAL_SGD: LocalRounds,
    options.DILOCO: LocalRounds,
}


def main(arguments: list[str] | None = None) -> int:
    o = options.parse(arguments)
    prepare(o)
    o.out.mkdir(parents=True, exist_ok=True)
    try:
        if o.algorithm.name in options.GOSSIP:
            summary = gossip.run(o)
        else:
            summary = TRAINERS[o.algorithm.name](o).run()
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 1
    (o.out / "metrics.jsonl").write_text("")
    # In one move: who sees the file takes the run for made.
    new = o.out / "summary.json.new"
    new.write_text(json.dumps(summary, indent=1) + "\n")
    os.replace(new, o.out / "summary.json")
    return 0


if __name__ == "__main__":
    stopping.on_signals()  # the workers of gossip must not be left behind
    sys.exit(main())
