"""What all tests share: no network but loopback (pytest-socket, in pyproject.toml), no hub, one thread a library."""

import os

# Set before any test imports torch or transformers: both read these once, at import.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
