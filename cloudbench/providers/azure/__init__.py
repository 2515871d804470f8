"""Azure as a provider: Batch pools and plain virtual machines, with an Azure file share for what nodes write."""
