"""The commands, one a file: its options beside its code. Reading them imports nothing heavy."""
