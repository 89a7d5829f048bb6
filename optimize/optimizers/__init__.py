"""The teleprompters: each compiles a program's prompts, weights, probes or thresholds, or tunes its retriever."""
