"""Checks of compress() that torchrun starts on every worker: see ddp_test.py.

Arguments: the names of checks to run; all of them if there are none. Each worker says
"ok NAME RANK" for each that it has passed; the first that fails ends the run.
"""

# Each registers its checks.
import ddp_arguments  # noqa: F401
import ddp_doors  # noqa: F401
import ddp_formats  # noqa: F401
import ddp_forms  # noqa: F401
import ddp_gradients  # noqa: F401
import ddp_handle  # noqa: F401
import ddp_memory  # noqa: F401
import ddp_metric  # noqa: F401
from checking import main

if __name__ == "__main__":
    main()
