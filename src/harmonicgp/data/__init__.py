"""Where data come from."""

from harmonicgp.data.files import DataNotFoundError, data_folder, load_npz, standardised_fold

__all__ = ["DataNotFoundError", "data_folder", "load_npz", "standardised_fold"]
