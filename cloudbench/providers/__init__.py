"""Where runs run: one module a provider, all behind the contract in `base`."""
