"""Training a base model on rows of prompt and completion: LoRA adapters or all weights."""
