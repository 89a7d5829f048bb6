"""The papers' public data sets: where they come from, and how they become splits and a corpus."""
