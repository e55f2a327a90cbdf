"""Run all tests with `python3 -m unittest` in the folder above.

Tests that require a server are skipped if `ONWARD_SERVER` is not set.
"""

import logging

# Discards the log messages of workers: the tests provoke warnings.
logging.getLogger("onward").addHandler(logging.NullHandler())
logging.getLogger("onward").propagate = False
