"""The kinds of index: ColBERT, BM25, dense, hybrid, and one in Qdrant."""
