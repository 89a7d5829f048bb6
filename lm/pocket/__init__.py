"""The pocket Llama: a Llama of 1.4 million weights that lives in the closed world, and the recipe that makes it."""

from pathlib import Path


def path() -> Path:
    """The folder of the shipped weights, in the Hugging Face layout."""
    return Path(__file__).parent / "weights"
