"""`python3 -m unittest` in the folder above runs all; what needs a server is skipped without `ONWARD_SERVER`."""

import logging

# What workers log is expected here.
logging.getLogger("onward").addHandler(logging.NullHandler())
logging.getLogger("onward").propagate = False
