from __future__ import annotations

import json
import math
import os
import pickle
import stat
import struct
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import harmonicgp.io.container as files
from harmonicgp import __version__
from harmonicgp.backend.files import replacing
from harmonicgp.io.container import ModelFileError, read_container, write_container, write_text_atomically

HEADER = {"rows": 3, "names": ["a", "é"], "history": [{"bound": -1.25, "seconds": 0.1}, {"bound": math.inf}]}


def tensors() -> dict[str, torch.Tensor]:
    base = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    return {
        "double": torch.tensor([1.0, -0.0, math.nan, math.inf, 5e-324], dtype=torch.float64),
        "single": torch.tensor(1.5, dtype=torch.float32),
        "whole": torch.tensor([[-(2**62), 7]]),
        "flags": torch.tensor([True, False]),
        "transposed": base.T,
        "strided": base[:, ::2],
        "shared": base,
        "part of shared": base[1:],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "nothing": torch.zeros(0, 5),
        "nothing either": torch.zeros(2, 0, dtype=torch.int64),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "negated view": torch.complex(torch.ones(2), torch.ones(2)).conj().imag,
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.model"


@pytest.fixture
def small(path):
    write_container(path, "model", 2, {"a": [1, 0.5]}, {"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([True])})
    return path


def refuses(path, text, kind="model", newest=9):
    with pytest.raises(ModelFileError) as caught:
        read_container(path, kind, newest)
    message = str(caught.value)
    assert text in message
    assert "\n" not in message


def rewrite(path, change=None, **metadata):
    """The file again, its record changed, digest and all else as given."""
    with safe_open(path, "pt") as file:
        text, held = file.metadata()["harmonicgp"], {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    record = json.loads(text)
    if change is not None:
        change(record)
    save_file(held, path, metadata=metadata or {"harmonicgp": json.dumps(record)})


# Round trips ----------------------------------------------------------------------------------------------------------


def test_comes_back_as_it_was(path):
    before = tensors()
    write_container(path, "model", 3, HEADER, before)
    version, library, header, after = read_container(path, "model", 3)
    assert (version, library, header) == (3, __version__, HEADER)
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype
        assert after[name].shape == tensor.shape
        assert not after[name].requires_grad
        assert after[name].numpy().tobytes() == tensor.detach().resolve_neg().contiguous().numpy().tobytes(), name


def test_is_a_safetensors_file_with_one_key(path):
    write_container(path, "model", 1, HEADER, {"w": torch.ones(2)})
    with safe_open(path, "pt") as file:
        assert list(file.metadata()) == ["harmonicgp"]
        record = json.loads(file.metadata()["harmonicgp"], parse_constant=pytest.fail)
    assert record.keys() == {"kind", "version", "library", "digest", "header"}
    assert (record["kind"], record["version"], record["library"]) == ("model", 1, __version__)


def test_same_contents_make_the_same_bytes(tmp_path):
    write_container(tmp_path / "a", "model", 1, HEADER, tensors())
    write_container(tmp_path / "b", "model", 1, dict(HEADER), dict(reversed(tensors().items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tensors_own_their_memory(small):
    held = read_container(small, "model", 2).tensors["w"]
    with open(small, "r+b") as file:  # in place: a mapped file would show it
        file.write(b"\xff" * small.stat().st_size)
    assert held.tolist() == [1.0, 2.0]
    held += 1
    assert held.untyped_storage().nbytes() == held.numel() * held.element_size()


def test_no_tensors_and_an_empty_header(path):
    write_container(path, "checkpoint", 1, {}, {})
    assert read_container(str(path), "checkpoint", 1)[2:] == ({}, {})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters() | st.sampled_from("$\ud800"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$", "$float", "$$float", "$x", ""]), inner)
    ),
    max_leaves=8,
)  # fmt: skip


@given(value=json_values)
def test_headers_come_back_whatever_they_hold(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("headers") / "a"
    write_container(path, "model", 1, {"value": value}, {})
    # repr tells -0.0 from 0.0, True from 1, 1 from 1.0, and takes NaN for NaN.
    assert repr(read_container(path, "model", 1).header) == repr({"value": value})  # in their order, too


def test_numpy_and_tuples_become_plain(path):
    header = {
        "scalars": [np.float32(0.5), np.int64(3), np.bool_(True), np.str_("x"), np.float64(np.nan)],
        "array": np.array([[1.0, np.inf]]),
        "objects": np.array(["a", None, 2], dtype=object),
        "tuple": (1, (2,)),
    }
    write_container(path, "model", 1, header, {})
    back = read_container(path, "model", 1).header
    assert math.isnan(back["scalars"].pop())
    assert back == {
        "scalars": [0.5, 3, True, "x"],
        "array": [[1.0, math.inf]],
        "objects": ["a", None, 2],
        "tuple": [1, [2]],
    }
    assert [type(value) for value in back["scalars"]] == [float, int, bool, str]


# What cannot be written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"a": [0, {"b": {1, 2}}]}, "header['a'][1]['b'] is a set"),
        ({"a": {3: 1}}, "header['a'] has the key 3, a int"),
        ({"w": torch.ones(2)}, "header['w'] is a Tensor"),
        ({"w": np.zeros(20_000)}, "header['w'] is an array of 20000 numbers: put it among the tensors"),
        ({"when": np.datetime64("2020-01-01")}, "header['when'] is a date"),
        ({"z": 1j}, "header['z'] is a complex"),
    ],
)
def test_refuses_what_json_cannot_hold(path, header, text):
    with pytest.raises(TypeError) as caught:
        write_container(path, "model", 1, header, {})
    assert text in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({"z": torch.ones(2, dtype=torch.complex128)}, "view_as_real"),
        ({"s": torch.eye(3).to_sparse()}, "to_dense"),
        ({"n": np.ones(2)}, "is a ndarray, not a torch tensor"),
        ({"__metadata__": torch.ones(2)}, "cannot be the name"),
    ],
)
def test_refuses_tensors_that_files_cannot_hold(path, held, text):
    with pytest.raises(TypeError, match=text):
        write_container(path, "model", 1, {}, held)
    assert not path.exists()


def test_refuses_headers_that_could_not_be_read_again(path, monkeypatch):
    monkeypatch.setattr(files, "_LARGEST_HEADER", 1000)
    with pytest.raises(ValueError, match="too large: put arrays among the tensors"):
        write_container(path, "model", 1, {"text": '"' * 400}, {})
    with pytest.raises(ValueError, match="20 tensors are too many"):
        write_container(path, "model", 1, {}, {str(i): torch.ones(1) for i in range(20)})
    with pytest.raises(ValueError, match="kind of one word"):
        write_container(path, "two words", 1, {}, {})
    assert not path.exists()


# What cannot be read --------------------------------------------------------------------------------------------------


def test_says_what_is_wrong_with_a_file(tmp_path, path):
    refuses(path, f"there is no file {path}.")
    refuses(tmp_path, "is a folder, not a model")
    refuses("a\0b", "cannot be read")
    path.write_bytes(b"")
    refuses(path, "is empty.")
    path.write_bytes(b"abc")
    refuses(path, "has 3 bytes only: it is not a safetensors file, or was cut short.")
    path.write_text("x,y\n1,2\n3,4\n")
    refuses(path, "is not a model of harmonicgp: it is not a safetensors file.")
    torch.save({"w": torch.ones(2)}, path)
    refuses(path, "zip archive")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps({"w": [1, 2, 3]}, protocol=protocol))
        refuses(path, "pickle, which can run code and is never opened")
    save_file({"w": torch.ones(2)}, path)
    refuses(path, "is a safetensors file, but not from harmonicgp")
    save_file({"w": torch.ones(2)}, path, metadata={"format": "pt"})
    refuses(path, "is a safetensors file, but not from harmonicgp")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes to refuse")
def test_does_not_wait_for_a_pipe(path):
    os.mkfifo(path)
    refuses(path, "is a device or a pipe")
    with pytest.raises(OSError, match="device or a pipe"):
        write_text_atomically(path, "a")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root can read every file, so none is unreadable"
)
def test_says_that_a_file_is_unreadable(small):
    small.chmod(0)
    refuses(small, "cannot be read: Permission denied.")


def test_says_which_kind_and_version(small):
    refuses(small, "is a model, not a checkpoint.", kind="checkpoint")
    refuses(
        small,
        f"was written by harmonicgp {__version__} in format 2; this version reads up to 1: upgrade harmonicgp.",
        newest=1,
    )
    rewrite(small, lambda record: record.update(version=3, fresh="of a format to come"))
    refuses(small, "in format 3; this version reads up to 2: upgrade", newest=2)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["header"].update(a=[1, 0.25]),
        lambda record: record.update(library="9.9"),
        lambda record: record.update(version=1),
        lambda record: record.update(digest="0" * 64),
        lambda record: record.update(digest=None),
        lambda record: record.update(more=1),
        lambda record: record.pop("header"),
        lambda record: record.update(header=[]),
        lambda record: record.pop("kind"),
        lambda record: record.update(kind=["model"]),
        lambda record: record.update(version=True),
        lambda record: record.update(version=-1),
        lambda record: record.update(library="two\nlines"),
        lambda record: record["header"].update(a={"$float": "1"}),
        lambda record: record["header"].update(a=math.nan),
    ],
)
def test_says_that_a_header_was_altered(small, change):
    rewrite(small, change)
    refuses(small, "was altered or damaged")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '{"kind": NaN}', "[" * 100_000, '{"kind": 1e999}', '{"kind": ' + "9" * 5000 + "}"]
)
def test_metadata_that_is_no_record(small, text):
    rewrite(small, harmonicgp=text)
    refuses(small, "was altered or damaged")


@pytest.mark.parametrize("value", [{"$float": "1"}, {"$float": []}, {"$odd": 1}, {"b": {"$": 1}}])
def test_texts_for_numbers_are_few_even_under_a_valid_digest(path, monkeypatch, value):
    monkeypatch.setattr(files, "_encode", lambda value, place: value)
    write_container(path, "model", 1, {"a": value}, {})
    monkeypatch.undo()
    refuses(path, "was altered or damaged")


def test_other_dtypes_are_not_opened(small):
    with safe_open(small, "pt") as file:
        text = file.metadata()["harmonicgp"]
    save_file({"w": torch.ones(2, dtype=torch.complex64)}, small, metadata={"harmonicgp": text})
    refuses(small, "was altered or damaged")


def test_absurd_header_sizes(small):
    data = small.read_bytes()
    for claim in (2**64 - 1, 2**63, 10**9, files._LARGEST_HEADER + 1):
        small.write_bytes(struct.pack("<Q", claim) + data[8:])
        refuses(small, "was altered or damaged: it claims a header of")
    small.write_bytes(struct.pack("<Q", 10**6) + data[8:])
    refuses(small, "was cut short")


def test_every_truncation_is_refused(small):
    data = small.read_bytes()
    for length in range(len(data)):
        small.write_bytes(data[:length])
        refuses(small, "is empty" if length == 0 else "cut short")
    small.write_bytes(data + b"\0")
    refuses(small, "was altered or damaged")


def test_every_flipped_byte_is_refused_or_harmless(small):
    expected = read_container(small, "model", 2)
    data = bytearray(small.read_bytes())
    refused = 0
    for place in range(len(data)):
        for flip in (0x01, 0x20, 0xFF):
            data[place] ^= flip
            small.write_bytes(data)
            data[place] ^= flip
            try:
                found = read_container(small, "model", 2)
            except ModelFileError:
                refused += 1
                continue
            assert found[:3] == expected[:3]
            assert {name: t.tolist() for name, t in found.tensors.items()} == {
                name: t.tolist() for name, t in expected.tensors.items()
            }
    assert refused > 2.7 * len(data)  # what is harmless is white space and escapes


@given(
    data=st.binary(max_size=60),
    lead=st.sampled_from([b"", b"\x30" + b"\0" * 7, b"\x30" + b"\0" * 7 + b'{"__metadata__":']),
)
def test_arbitrary_bytes_are_refused(tmp_path_factory, data, lead):
    path = tmp_path_factory.mktemp("bytes") / "a"
    path.write_bytes(lead + data)
    with pytest.raises(ModelFileError):
        read_container(path, "model", 1)


# Whole or not at all --------------------------------------------------------------------------------------------------


def fail(*_arguments, **_keywords):
    raise OSError("the disk is full")


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failed_write_leaves_the_old_file(small, monkeypatch, step):
    before = small.read_bytes()
    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(OSError, match="disk is full"):
        write_container(small, "model", 2, {"a": 2}, {"w": torch.zeros(100)})
    monkeypatch.undo()
    assert small.read_bytes() == before
    assert os.listdir(small.parent) == [small.name]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_write_that_stops_midway_leaves_the_old_file(small, error):
    before = small.read_bytes()

    def write_half():
        with replacing(small) as file:
            file.write(b"half of it")
            file.flush()
            assert small.read_bytes() == before
            raise error

    with pytest.raises(error):
        write_half()
    assert small.read_bytes() == before
    assert os.listdir(small.parent) == [small.name]


def test_bytes_are_on_the_disk_before_the_name(small, monkeypatch):
    calls = []
    monkeypatch.setattr(files.os, "fsync", lambda fd: calls.append(stat.S_IFMT(os.fstat(fd).st_mode)))
    replace = os.replace
    monkeypatch.setattr(files.os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    write_text_atomically(small, "a")
    assert calls[:2] == [stat.S_IFREG, "replace"]
    assert calls[2:] == ([] if sys.platform == "win32" else [stat.S_IFDIR])


def test_a_folder_that_cannot_be_flushed_is_no_error(path, monkeypatch):
    monkeypatch.setattr(files.os, "open", fail)
    write_text_atomically(path, "a")
    assert path.read_text() == "a"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX modes of files to keep")
def test_permissions_are_those_of_open(tmp_path):
    with open(tmp_path / "opened", "w"):
        pass
    ordinary = stat.S_IMODE((tmp_path / "opened").stat().st_mode)
    write_text_atomically(tmp_path / "new", "a")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == ordinary
    write_container(tmp_path / "model", "model", 1, {}, {"w": torch.ones(2)})
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == ordinary
    (tmp_path / "new").chmod(0o640)
    write_text_atomically(tmp_path / "new", "b")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path):
    (tmp_path / "to").mkdir()
    os.symlink(tmp_path / "to" / "file", tmp_path / "link")
    write_text_atomically(tmp_path / "link", "a")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "to" / "file").read_text() == "a"


def test_text_is_written_as_it_is(path):
    for text in ("é\r\nb\n", "", "shorter"):
        write_text_atomically(path, text)
        assert path.read_bytes() == text.encode()


def test_says_where_a_file_cannot_be_written(tmp_path, path, monkeypatch):
    with pytest.raises(IsADirectoryError, match="is a folder: name a file in it"):
        write_text_atomically(tmp_path, "a")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere: make it first"):
        write_text_atomically(tmp_path / "nowhere" / "a", "a")
    path.write_text("old")
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(PermissionError, match="write-protected"):
        write_text_atomically(path, "new")
    assert path.read_text() == "old"
