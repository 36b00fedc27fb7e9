"""How each library makes a table."""

from __future__ import annotations

import pytest

from tests.tables.common import LIBRARIES


@pytest.fixture(params=LIBRARIES)
def frame(request):
    """How each library makes a table of a dict."""
    return LIBRARIES[request.param]
