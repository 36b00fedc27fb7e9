"""Everything between a user's file or frame and arrays of numbers."""

from harmonicgp.tables.encoder import Kind, TableEncoder, UnseenGapsWarning, UnseenLevelsWarning, check_kinds, is_frame
from harmonicgp.tables.streams import index_columns, read_table, stream_rows, stream_table
from harmonicgp.tables.writing import TableWriter

__all__ = [
    "Kind",
    "TableEncoder",
    "TableWriter",
    "UnseenGapsWarning",
    "UnseenLevelsWarning",
    "check_kinds",
    "index_columns",
    "is_frame",
    "read_table",
    "stream_rows",
    "stream_table",
]
