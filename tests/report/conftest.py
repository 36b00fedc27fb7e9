"""What the tests of reports share."""

from __future__ import annotations

from io import BytesIO

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from harmonicgp.report import pictures


@pytest.fixture
def quick(monkeypatch):
    """One small picture for all: for tests of the words."""
    buffer = BytesIO()
    matplotlib.image.imsave(buffer, np.eye(4))
    monkeypatch.setattr(pictures, "draw", lambda *args, **kwargs: buffer.getvalue())
