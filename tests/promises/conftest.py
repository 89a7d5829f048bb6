"""What the promises share."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def hostile() -> ModuleType:
    """tests/promises/hostile.py: replies that want to be misread, and what may be read from them."""
    spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
    assert spec is not None and spec.loader is not None
    sys.modules["hostile"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
