"""A model at an endpoint of one's own under DSPy's own tools."""

import pytest

from raisf.lm.connect import connect
from raisf.utils.errors import InputError

URL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("told", ["api_base", "environment"])
def test_training_rows_are_never_uploaded_to_the_provider_of_its_name(monkeypatch, told):
    uploaded = []
    monkeypatch.setattr("openai.files.create", lambda **given: uploaded.append(given))
    if told == "environment":
        monkeypatch.setenv("OPENAI_API_BASE", URL)
    lm = connect("openai/tiny", api_base=URL if told == "api_base" else None)
    with pytest.raises(InputError, match="would upload the training rows to the provider of its name"):
        lm.finetune([{"messages": []}], "chat").result()
    assert not uploaded
