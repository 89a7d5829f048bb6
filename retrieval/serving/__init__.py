"""An index behind HTTP, and its client."""
