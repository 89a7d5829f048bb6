"""Retrieval: documents become passages, passages an index, a query the k best passages."""
