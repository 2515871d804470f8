"""The program that runs on every node: the same on each provider, Python 3.8 and the standard library only.

It finds its peers, starts the ranks, writes one log per rank, records the machine's facts, and leaves nothing
running behind. It imports nothing of the rest of cloudbench, and travels as one `.pyz` (see `bundle`).
"""
