"""The teleprompters: each compiles a program's prompts, weights or thresholds."""
