"""The language models: how a signature becomes text, and what answers it, in the process or behind an endpoint."""
