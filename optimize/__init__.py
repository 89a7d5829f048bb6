"""Optimize: data for the judges, compiling a program to few-shot prompts, and the artifacts that keep the result."""
