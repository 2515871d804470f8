"""The training programs that ship with cloudbench: they run on a node and import nothing of the rest of it."""
