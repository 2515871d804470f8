"""A stand-in of Azure Files: the REST service of one storage account whose shares are plain folders of this machine.

It serves shares, directories and files with their metadata, byte ranges and listings, and it checks the signatures of
shared keys and of service SAS. It does not serve leases, snapshots, copies, renames, handles, permissions, stored
access policies and account SAS: those are refused with the service's own error codes. Unlike the service it gives
names of metadata back in lower case, and it lists as written ranges those that hold anything but zeros.
"""

from __future__ import annotations

from cloudbench.rehearsal.azure_files.service import FilesStandIn

__all__ = ["FilesStandIn"]
