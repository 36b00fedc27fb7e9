"""Everything between a user's file or frame and arrays of numbers."""

from harmonicgp.tables.encoder import TableEncoder, is_frame
from harmonicgp.tables.kinds import check_kinds
from harmonicgp.tables.notices import (
    IdentifierColumnError,
    MissingValuesError,
    UndeclaredColumnsError,
    UnseenGapsWarning,
    UnseenLevelsWarning,
    UnseenWarning,
)
from harmonicgp.tables.streams import index_columns, read_table, stream_rows, stream_table
from harmonicgp.tables.writing import TableWriter

__all__ = [
    "IdentifierColumnError",
    "MissingValuesError",
    "TableEncoder",
    "TableWriter",
    "UndeclaredColumnsError",
    "UnseenGapsWarning",
    "UnseenLevelsWarning",
    "UnseenWarning",
    "check_kinds",
    "index_columns",
    "is_frame",
    "read_table",
    "stream_rows",
    "stream_table",
]
