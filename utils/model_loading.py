"""transformers reads one model at a time: of two that threads read together, both may end without weights.

While it reads one it replaces `PreTrainedModel.tie_weights` for the whole process; whoever puts it back last may leave
the replacement there. It also imports its classes only when they are asked for, and of threads that ask for one
together some find none.
"""

import threading

ONE_AT_A_TIME = threading.Lock()
"""Held around every `from_pretrained` of a model, and around the import of the classes that it takes."""
