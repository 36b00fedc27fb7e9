"""How good is an approximation, before any target is seen."""

from harmonicgp.diagnostics.nystrom import minimise_trace_error, trace_error

__all__ = ["minimise_trace_error", "trace_error"]
