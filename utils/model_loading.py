"""transformers reads one model at a time: of two that threads read together, both may end without weights.

While it reads one it replaces `PreTrainedModel.tie_weights` for the whole process; whoever puts it back last may leave
the replacement there.
"""

import threading

ONE_AT_A_TIME = threading.Lock()
"""Held around every `from_pretrained` of a model."""
