"""A GPU that fails is told as that, by whatever command."""

import pytest
import torch

from raisf import cli


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), torch.AcceleratorError("no kernel image")])
def test_a_gpu_that_fails_is_told_in_a_line_with_what_to_do(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a training on a card that is too small."""

    def invoke(context: object) -> None:
        raise error

    monkeypatch.setattr(cli.raisf, "invoke", invoke)
    assert cli.main(["programs"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the GPU") and str(error) in line and "CUDA_VISIBLE_DEVICES=" in line


def test_another_failure_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(context: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(cli.raisf, "invoke", invoke)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        cli.main(["programs"])
