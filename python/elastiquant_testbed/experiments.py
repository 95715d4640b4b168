"""The experiments of the testbed by name: what makes one, and what shows its result."""

from __future__ import annotations

from elastiquant_testbed import choco_show, curves, dagc, levels_show, table3_show, table4
from elastiquant_testbed.choco import Choco
from elastiquant_testbed.curves import Curves
from elastiquant_testbed.dagc import Dagc
from elastiquant_testbed.levels import Levels
from elastiquant_testbed.table3 import Table3
from elastiquant_testbed.table4 import Table4
from elastiquant_testbed.testbed import TestbedError

EXPERIMENTS = {
    "table3": (Table3, table3_show),
    "table4": (Table4, table4),
    "curves": (Curves, curves),
    "dagc": (Dagc, dagc),
    "levels": (Levels, levels_show),
    "choco": (Choco, choco_show),
}


def require_plots() -> None:
    """Raises TestbedError, which says what to install, where nothing can be drawn: after hours
    of training it would be too late."""
    try:
        import elastiquant_plot  # noqa: F401
    except ImportError as error:
        raise TestbedError(str(error)) from error
