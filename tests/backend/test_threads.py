"""Work shared out between threads: each piece once, errors and interrupts after all have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import pytest
import torch

from harmonicgp.backend.threads import cuts, in_blocks, no_threads_inside, side_by_side


def test_an_interrupt_waits_for_the_threads(monkeypatch):
    begun, ended = [], []

    def piece(k):
        begun.append(k)
        time.sleep(0.05 * k)
        ended.append(k)
        return k

    torch.set_num_threads(2)
    try:
        assert side_by_side([partial(piece, 1), partial(piece, 2)]) == [1, 2]
        begun.clear()
        ended.clear()

        def interrupted(future):
            while not begun:
                time.sleep(0.001)
            raise KeyboardInterrupt

        monkeypatch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            side_by_side([partial(piece, 1), partial(piece, 2)])
    finally:
        torch.set_num_threads(1)
    assert sorted(ended) == sorted(begun)  # none is left running; what had not begun does not begin
    time.sleep(0.15)
    assert sorted(ended) == sorted(begun)


@pytest.mark.parametrize(("count", "size"), [(1, 200), (2, 200), (5, 200), (8, 200), (5, 20), (0, 200), (0, 20)])
def test_every_block_is_worked_on_once(two_threads, count, size):
    times = torch.zeros(count)

    def work(b):
        times[b] += 1

    in_blocks(work, count, size)
    assert times.tolist() == [1.0] * count


def test_threads_side_by_side_have_none_inside(two_threads):
    def count():
        torch.randn(300, 300) @ torch.randn(300, 300)  # after which PyTorch has set up its threads
        return torch.get_num_threads()

    assert side_by_side([count, count]) == [1, 1]
    assert torch.get_num_threads() == 2


def test_threads_side_by_side_take_no_gradients_where_the_caller_takes_none(two_threads):
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not any(y.requires_grad for y in side_by_side([lambda: 2 * x, lambda: 3 * x]))
    assert all(y.requires_grad for y in side_by_side([lambda: 2 * x, lambda: 3 * x]))


def test_pytorchs_threads_rest_while_ours_work(two_threads):
    def work():
        return side_by_side([torch.get_num_threads] * 2), torch.get_num_threads(), len(cuts(80)) > 1

    for shapes, inside in (([(4, 200)], 1), ([(3, 200)], 2), ([(4, 20)], 2), ([(4, 200), (1, 400)], 2)):
        with suppress(RuntimeError), no_threads_inside(shapes):
            assert work() == ([1, 1], inside, True)
            with no_threads_inside(shapes):
                assert work() == ([1, 1], inside, True)
            raise RuntimeError("mine")
        assert work() == ([1, 1], 2, True)


def test_pieces_do_not_share_out_their_own_work(two_threads):
    def piece():
        return len(cuts(80)), side_by_side([torch.get_num_threads] * 3)

    assert side_by_side([piece] * 5) == [(1, [1, 1, 1])] * 5


@pytest.mark.parametrize("culprit", range(5))
def test_an_error_in_any_piece_comes_out_when_all_have_ended(two_threads, culprit):
    running = []

    def piece(i):
        running.append(i)
        time.sleep(0.01)
        running.remove(i)
        if i == culprit:
            raise IndexError(f"piece {i}")
        return i

    with pytest.raises(IndexError, match=f"piece {culprit}"):
        side_by_side([partial(piece, i) for i in range(5)])
    assert running == []
    assert side_by_side([partial(piece, 9), partial(piece, 8)]) == [9, 8]
    assert torch.get_num_threads() == 2


SPIN = """
import os
import subprocess
import sys
import time
import torch
from harmonicgp.backend.threads import stop_spinning

def seconds():
    start = time.process_time()
    for _ in range(100):
        torch.ones(1 << 16).exp_()
        time.sleep(0.004)  # in which idle threads may spin
    return time.process_time() - start

seconds()
before = seconds()
stop_spinning()
print(before, seconds())
"""


def test_threads_stop_spinning_where_torch_was_imported_first():
    """By processor time, which a loaded machine does not change."""
    limits = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in limits}
    if torch.__config__.parallel_info().find("OpenMP") < 0 or (os.cpu_count() or 1) < 2 or sys.platform != "linux":
        pytest.skip("only idle OpenMP threads on Linux spin, and only beside a second processor")
    done = subprocess.run([sys.executable, "-c", SPIN], env=environment, check=True, capture_output=True, text=True)
    before, after = map(float, done.stdout.split())
    assert after < 0.7 * before
