"""The systems that answer a question: RA-ISF and its baselines, on one interface, with one trace and one budget."""
