"""Which GPU setup trains my model fastest, for what money, and is the difference real?"""

__version__ = "0.1.0"
