"""Azure Batch on this machine: the data plane over HTTP, whose nodes really run what tasks ask for.

It serves pools, nodes, node counts, supported images, jobs, tasks, subtasks and their files, in versions 2025-06-01 and
2024-02-01.19.0 of the interface, to clients that sign with the account's shared key. It keeps state and time as the
service does, with delays that a test's clock turns on.

Not served, and answered by 501 `NotImplemented`: job schedules; job manager, preparation and release tasks; automatic
scaling; node users, remote login, extensions, log upload, reimage, deallocate and start; single applications. The
account has no application packages, so that references to them are refused. Of resource files only those with an
`httpUrl` are fetched. Accepted without effect: container prefetch (`BatchStandIn.prefetched` tells of it), placement,
network, user accounts and identities; `userIdentity`, since all runs as the caller; retention times.
"""

from cloudbench.rehearsal.azure_batch.scenario import SCENARIOS, Scenario, load_scenario
from cloudbench.rehearsal.azure_batch.stand_in import BatchStandIn

__all__ = ["SCENARIOS", "BatchStandIn", "Scenario", "load_scenario"]
