"""If these failed, an experiment would end, or count wrongly, by a file of labels that a person wrote."""

import pytest

from raisf.experiments import by_hand
from raisf.utils.errors import InputError


def test_labels_that_cannot_be_read_are_told(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("id,judge,question,label\na,relevance,In Köln?,relevant\n", encoding="latin-1")
    with pytest.raises(InputError, match=r"no text in UTF-8.*save it again"):
        by_hand.labels(path)
    path.write_text('id,judge,label\na,"relevance,relevant\nb,relevance,relevant\n')
    with pytest.raises(InputError, match="no CSV that can be read"):  # else the rows behind it would be one, unlabelled
        by_hand.labels(path)
    path.write_text(f"id,judge,label\na,{'x' * 200},relevant\n")
    with pytest.raises(InputError, match=r"line 2: the judge is 'x+: write relevance"):
        by_hand.labels(path)
    path.write_text("id,judge,label\nra,relevance,relevant\nra,relevance,irrelevant\n")
    with pytest.raises(InputError, match="line 3: the row ra is labelled twice, relevant and irrelevant"):
        by_hand.labels(path)
    path.write_text("judge,label,id\nrelevance,,r1\n \nrelevance,relevant,r2\n")
    assert by_hand.labels(path) == {"r2": "relevant"}
    path.write_text("judge,label,id\nrelevance,relevant\n")
    with pytest.raises(InputError, match="line 2: the label 'relevant' has no id beside it"):
        by_hand.labels(path)
    path.write_text("id,question,label\na,Who?,relevant\n")
    with pytest.raises(InputError, match="columns id, judge and label"):
        by_hand.labels(path)
