"""Stand-in of Azure Resource Manager: resource groups, deployments, and virtual machines that really run.

Served is what a client needs that makes one group with one deployment and deletes it again: groups (with their tags
and deletions that finish later), deployments of templates with the resource types of `templates.KNOWN`, their
operations, and the state of virtual machines. Every other path answers 404 with the code `InvalidResourceType`.
"""

from __future__ import annotations

from cloudbench.rehearsal.azure_resources.stand_in import ResourcesStandIn
from cloudbench.rehearsal.azure_resources.virtual_machines import MountableShares

__all__ = ["MountableShares", "ResourcesStandIn"]
