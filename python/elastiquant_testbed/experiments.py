"""The experiments of the testbed by name: what makes one, and what shows its result."""

from __future__ import annotations

from elastiquant_testbed import curves, dagc, levels_show, table3_show, table4
from elastiquant_testbed.curves import Curves
from elastiquant_testbed.dagc import Dagc
from elastiquant_testbed.levels import Levels
from elastiquant_testbed.table3 import Table3
from elastiquant_testbed.table4 import Table4

EXPERIMENTS = {
    "table3": (Table3, table3_show),
    "table4": (Table4, table4),
    "curves": (Curves, curves),
    "dagc": (Dagc, dagc),
    "levels": (Levels, levels_show),
}
