"""An index on disk: its manifest, segments and vectors, and how they change."""
