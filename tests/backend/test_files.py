"""Files that appear whole under their names, or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from harmonicgp.backend.files import replacing, replacing_path, writable


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "model.hgp"
    path.write_bytes(b"old")
    os.chmod(path, 0o640)
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_nothing_behind(tmp_path, error):
    def write_half():
        with replacing_path(tmp_path / "new.csv.gz") as temporary:
            assert temporary.suffix == ".gz"  # writers go by it
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_to(tmp_path):
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        writable(tmp_path)
    with pytest.raises(FileNotFoundError, match="make it first"):
        writable(tmp_path / "none" / "file")
    os.symlink(tmp_path / "target", tmp_path / "link")
    assert writable(tmp_path / "link") == (tmp_path / "target").resolve()
