"""The command line: fit, predict, report, suggest, info, demo, bench.

Heavy modules are imported inside the commands, so that `harmonicgp --help` is fast. A failure gives one line on stderr and an
exit code: 2 for a wrong command line, 1 for bad data, 130 after Ctrl-C. `--debug` shows the traceback.
"""

from harmonicgp.cli.commands import main

__all__ = ["main"]
