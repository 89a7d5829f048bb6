"""Optimize: data for the judges, compiling a program to prompts and weights, and the artifacts that keep it."""
