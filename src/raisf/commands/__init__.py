"""The commands: their options and what they do."""
