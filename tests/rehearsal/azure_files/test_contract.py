"""One client's whole stay, each exchange held against Microsoft's OpenAPI document."""

from __future__ import annotations

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareServiceClient

from cloudbench.rehearsal.azure_files import FilesStandIn

from .conftest import ACCOUNT, KEY
from .contract import DOCUMENT, contract

pytestmark = pytest.mark.shared

SERVED = {
    *("Service_GetProperties", "Service_ListSharesSegment"),
    *("Share_Create", "Share_GetProperties", "Share_Delete", "Share_SetProperties", "Share_SetMetadata"),
    *("Share_GetStatistics", "Directory_Create", "Directory_GetProperties", "Directory_Delete"),
    *("Directory_SetProperties", "Directory_SetMetadata", "Directory_ListFilesAndDirectoriesSegment"),
    *("File_Create", "File_Download", "File_GetProperties", "File_Delete", "File_SetHTTPHeaders"),
    *("File_SetMetadata", "File_UploadRange", "File_GetRangeList"),
}


def use_shares(service: ShareServiceClient) -> None:
    share = service.create_share("runs", metadata={"owner": "me"})
    service.get_service_properties()
    share.set_share_quota(7)
    share.set_share_metadata({"owner": "you"})
    share.get_share_properties()
    share.get_share_stats()
    assert len(list(service.list_shares(include_metadata=True, results_per_page=1))) == 1
    service.delete_share("runs")


def use_directories(service: ShareServiceClient) -> None:
    share = service.create_share("logs")
    directory = share.create_directory("r1", metadata={"owner": "me"})
    directory.set_directory_metadata({"owner": "you"})
    directory.set_http_headers(file_attributes="Hidden")
    directory.create_subdirectory("node-0")
    directory.upload_file("rank-0.log", b"1")
    everything = ["timestamps", "etag", "attributes", "permissionkey"]
    listing = directory.list_directories_and_files(include=everything, results_per_page=1)
    assert len(list(listing)) == len(list(directory.list_directories_and_files("r"))) + 1
    directory.get_directory_properties()
    directory.delete_subdirectory("node-0")


def use_files(service: ShareServiceClient) -> None:
    with service.create_share("files").get_file_client("rank-0.log") as file:
        file.upload_file(b"1234", metadata={"rank": "0"})
        file.resize_file(512)
        file.clear_range(0, 512)
        file.set_file_metadata({"rank": "1"})
        assert file.download_file().readall() == bytes(512)
        file.download_file(offset=1, length=2).readall()
        list(file.list_ranges())
        file.get_file_properties()
        file.delete_file()


def fail(service: ShareServiceClient) -> None:
    share = service.get_share_client("none")
    for call in (share.get_share_properties, share.delete_share, share.create_snapshot, share.get_share_access_policy):
        with pytest.raises(HttpResponseError):
            call()
    with pytest.raises(HttpResponseError):
        share.get_file_client("a").create_file(1)
    with pytest.raises(HttpResponseError):
        service.create_share("logs")


def test_all_that_is_served_is_said_as_the_document_says_it(stand_in: FilesStandIn) -> None:
    seen = contract()
    if seen is None:
        pytest.skip(f"there is no {DOCUMENT.name} beside this checkout")
    credential = AzureNamedKeyCredential(ACCOUNT, KEY)
    with ShareServiceClient(stand_in.endpoint, credential, retry_total=0, raw_response_hook=seen.check) as service:
        for use in (use_shares, use_directories, use_files, fail):
            use(service)
    assert seen.operations >= SERVED
    assert seen.operations - SERVED == {"Share_CreateSnapshot", "Share_GetAccessPolicy"}
    assert seen.codes == {"ShareNotFound", "ShareAlreadyExists", "UnsupportedQueryParameter"}
