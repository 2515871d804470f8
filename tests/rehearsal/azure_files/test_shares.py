"""Shares: made, described, listed, deleted."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from cloudbench.rehearsal.azure_files.shares import DELETING_S


def test_a_share_is_a_folder_that_a_node_can_mount(stand_in, share):
    (stand_in.folder("runs") / "from-a-node.log").write_text("text")
    with share.get_file_client("from-a-node.log") as file:
        assert file.download_file().readall() == b"text"
        assert file.get_file_properties().size == 4
    share.create_directory("1").upload_file("job.json", b"{}")
    assert (stand_in.folder("RUNS") / "1" / "job.json").read_bytes() == b"{}"


def test_a_rehearsal_can_begin_with_a_share(stand_in, service):
    folder = stand_in.make_share("runs")
    assert (folder, list(folder.iterdir())) == (stand_in.folder("runs"), [])
    assert [share.name for share in service.list_shares()] == ["runs"]


def test_there_is_no_folder_of_a_share_that_was_not_made(stand_in):
    with pytest.raises(LookupError, match="there is no share runs"):
        stand_in.folder("runs")


def test_a_share_keeps_its_metadata_and_quota(service):
    share = service.create_share("runs", metadata={"owner": "me"}, quota=10)
    first = share.get_share_properties()
    assert (first.name, first.metadata, first.quota) == ("runs", {"owner": "me"}, 10)
    share.set_share_quota(20)
    share.set_share_metadata({"owner": "you", "run": "1"})
    second = share.get_share_properties()
    assert (second.metadata, second.quota) == ({"owner": "you", "run": "1"}, 20)
    assert first.etag != second.etag


def test_a_share_says_how_much_it_holds(share):
    share.create_directory("1").upload_file("a", b"12345")
    share.get_file_client("b").upload_file(b"678")
    assert share.get_share_stats() == 8


def test_a_share_is_made_once(service, share):
    with pytest.raises(ResourceExistsError) as refused:
        service.create_share("runs")
    assert refused.value.error_code == "ShareAlreadyExists"


def test_a_share_that_is_deleted_keeps_its_name_for_a_while(stand_in, service, share, clock):
    share.get_file_client("a").upload_file(b"1")
    folder = stand_in.folder("runs")
    service.delete_share("runs")
    assert not folder.exists()
    with pytest.raises(ResourceNotFoundError) as gone:
        share.get_share_properties()
    with pytest.raises(ResourceExistsError) as early:
        service.create_share("runs")
    assert (gone.value.error_code, early.value.error_code) == ("ShareNotFound", "ShareBeingDeleted")
    clock.advance(DELETING_S)
    assert list(service.create_share("runs").list_directories_and_files()) == []


def test_shares_are_listed_in_pages(service):
    for number in range(5):
        service.create_share(f"run-{number}", metadata={"number": str(number)})
    service.create_share("other")
    pages = [
        [(share.name, share.metadata) for share in page]
        for page in service.list_shares(name_starts_with="run-", include_metadata=True, results_per_page=2).by_page()
    ]
    listed = [(f"run-{number}", {"number": str(number)}) for number in range(5)]
    assert pages == [listed[:2], listed[2:4], listed[4:]]
    assert [share.name for share in service.list_shares()] == ["other", *(name for name, _ in listed)]


@pytest.mark.parametrize("name", ["ab", "Runs", "a--b", "-runs", "runs-", "r_ns", "a" * 64])
def test_a_name_that_a_share_cannot_have_is_refused(service, name):
    with pytest.raises(HttpResponseError) as refused:
        service.create_share(name)
    assert refused.value.error_code == "InvalidResourceName"


@pytest.mark.parametrize("quota", [0, 102401])
def test_a_quota_that_a_share_cannot_have_is_refused(share, quota):
    with pytest.raises(HttpResponseError) as refused:
        share.set_share_quota(quota) if quota else share.set_share_properties(quota="0")
    assert refused.value.error_code == "InvalidHeaderValue"


def test_what_is_not_served_is_refused_by_name(service, share):
    with pytest.raises(HttpResponseError) as snapshot:
        share.create_snapshot()
    with pytest.raises(HttpResponseError) as policy:
        share.get_share_access_policy()
    assert {snapshot.value.error_code, policy.value.error_code} == {"UnsupportedQueryParameter"}
    assert service.get_service_properties()["cors"] == []
