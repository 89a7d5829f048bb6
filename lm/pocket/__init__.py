"""The pocket models: a Llama that lives in the closed world, smaller ones that judge for it, and the recipe of all.

Each was made on a CPU, from seed 0 and with the tokens that its size has by default:

    raisf pocket train --out DIR               pocket: answers and judges
    raisf pocket train --size tiny --out DIR   pocket-tiny: the same Llama at half the width
    raisf pocket train --size t5 --out DIR     pocket-t5: an encoder-decoder that judges, decomposes and recalls
"""

from pathlib import Path

# The folder of each one's weights, beside this file.
WEIGHTS = {"pocket": "weights", "pocket-tiny": "weights-tiny", "pocket-t5": "weights-t5"}


def path(name: str = "pocket") -> Path:
    """The folder of shipped weights, in the Hugging Face layout."""
    return Path(__file__).parent / WEIGHTS[name]
