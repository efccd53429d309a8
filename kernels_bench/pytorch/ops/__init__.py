"""Single ops of PyTorch: which, of what sizes (families), and how long (timer)."""
