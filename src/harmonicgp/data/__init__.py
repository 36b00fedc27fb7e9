"""Where data come from."""

from harmonicgp.data.files import DataFileError, DataNotFoundError, data_folder, load_npz, standardised_fold
from harmonicgp.data.streams import index_columns, read_table, stream_rows, stream_table
from harmonicgp.data.tables import Kind, TableEncoder, UnseenGapsWarning, UnseenLevelsWarning, check_kinds, is_frame
from harmonicgp.data.writing import TableWriter

__all__ = [
    "DataFileError",
    "DataNotFoundError",
    "Kind",
    "TableEncoder",
    "TableWriter",
    "UnseenGapsWarning",
    "UnseenLevelsWarning",
    "check_kinds",
    "data_folder",
    "index_columns",
    "is_frame",
    "load_npz",
    "read_table",
    "standardised_fold",
    "stream_rows",
    "stream_table",
]
