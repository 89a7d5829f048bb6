"""`import raisf` as a Python user meets it."""

import pytest

import raisf


@pytest.mark.parametrize("name", raisf.__all__)
def test_every_promised_name_is_there(name):
    assert callable(getattr(raisf, name))
    assert name in dir(raisf)


def test_a_misspelt_name_says_what_there_is():
    with pytest.raises(AttributeError, match="RAISF"):
        raisf.RAISV  # noqa: B018
