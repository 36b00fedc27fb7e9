"""Where data come from."""

from harmonicgp.data.files import DataNotFoundError, data_folder, load_npz, standardised_fold
from harmonicgp.data.streams import TableWriter, read_table, stream_rows, stream_table
from harmonicgp.data.tables import Kind, TableEncoder, UnseenLevelsWarning, check_kinds, is_frame

__all__ = [
    "DataNotFoundError",
    "Kind",
    "TableEncoder",
    "TableWriter",
    "UnseenLevelsWarning",
    "check_kinds",
    "data_folder",
    "is_frame",
    "load_npz",
    "read_table",
    "standardised_fold",
    "stream_rows",
    "stream_table",
]
