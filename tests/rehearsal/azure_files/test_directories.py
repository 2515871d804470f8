"""Directories: made, described, listed, deleted."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

METADATA = {"cloudbench_owner": "me", "cloudbench_run": "r1"}


@pytest.fixture
def folder(stand_in, share):
    """The share's folder, as a node has it mounted."""
    return stand_in.folder("runs")


def names(listing):
    return [item.name for item in listing]


def test_a_directory_keeps_its_metadata(share):
    directory = share.create_directory("runs").create_subdirectory("r1", metadata=METADATA)
    first = directory.get_directory_properties()
    assert (first.metadata, first.file_attributes, first.server_encrypted) == (METADATA, "Directory", True)
    directory.set_directory_metadata({"cloudbench_owner": "you"})
    second = directory.get_directory_properties()
    assert second.metadata == {"cloudbench_owner": "you"}
    assert first.etag != second.etag
    assert first.creation_time == second.creation_time


def test_a_directory_without_its_parent_is_refused(share):
    with pytest.raises(ResourceNotFoundError) as refused:
        share.create_directory("runs/r1")
    assert refused.value.error_code == "ParentNotFound"
    with pytest.raises(ResourceNotFoundError) as refused:
        share.get_directory_client("runs/r1").get_directory_properties()
    assert refused.value.error_code == "ParentNotFound"
    with pytest.raises(ResourceNotFoundError) as refused:
        share.get_directory_client("runs").get_directory_properties()
    assert refused.value.error_code == "ResourceNotFound"


def test_what_is_there_in_any_case_is_not_made_again(share):
    share.create_directory("Runs")
    share.get_file_client("Log").upload_file(b"")
    for name in ("Runs", "RUNS", "log"):
        with pytest.raises(ResourceExistsError) as refused:
            share.create_directory(name)
        assert refused.value.error_code == "ResourceAlreadyExists"
    assert sorted(names(share.list_directories_and_files())) == ["Log", "Runs"]


def test_a_directory_is_deleted_when_it_is_empty(share, folder):
    directory = share.create_directory("r1", metadata=METADATA)
    directory.upload_file("a", b"")
    with pytest.raises(HttpResponseError) as refused:
        directory.delete_directory()
    assert (refused.value.status_code, refused.value.error_code) == (409, "DirectoryNotEmpty")
    directory.delete_file("a")
    directory.delete_directory()
    assert not directory.exists()
    assert list(folder.iterdir()) == []
    assert share.create_directory("r1").get_directory_properties().metadata == {}


def test_the_root_is_a_directory_that_goes_with_its_share_only(share):
    root = share.get_directory_client()
    assert root.get_directory_properties().file_attributes == "Directory"
    with pytest.raises(HttpResponseError) as refused:
        root.delete_directory()
    assert refused.value.error_code == "InvalidUri"


def test_a_listing_tells_what_it_is_asked(share):
    directory = share.create_directory("r1")
    directory.create_subdirectory("node-0")
    directory.upload_file("rank-0.log", b"12345")
    node, log = sorted(directory.list_directories_and_files(), key=lambda item: item.name)
    assert (node.is_directory, node.etag, log.is_directory, log.size, log.etag) == (True, None, False, 5, None)
    asked = ["timestamps", "etag", "attributes", "permissionkey"]
    node, log = sorted(directory.list_directories_and_files(include=asked), key=lambda item: item.name)
    properties = directory.get_file_client("rank-0.log").get_file_properties()
    assert (log.etag, log.file_id) == (properties.etag, properties.file_id)
    assert (node.file_attributes, log.file_attributes) == ("Directory", "Archive")
    assert log.last_write_time.endswith("0Z")


def test_listings_page_without_regard_to_case(share):
    directory = share.create_directory("r1")
    for name in ("b", "B2", "a", "C", "a.b", "other"):
        directory.upload_file(name, b"")
    pages = [names(page) for page in directory.list_directories_and_files(results_per_page=2).by_page()]
    assert pages == [["a", "a.b"], ["b", "B2"], ["C", "other"]]
    assert names(directory.list_directories_and_files(name_starts_with="b")) == ["b", "B2"]
    pages = directory.list_directories_and_files(results_per_page=4).by_page()
    first = names(next(pages))
    directory.delete_file("B2")  # the last of the page
    rest = directory.list_directories_and_files(results_per_page=4).by_page(pages.continuation_token)
    assert first + names(next(rest)) == ["a", "a.b", "b", "B2", "C", "other"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"results_per_page": 0}, "OutOfRangeQueryParameterValue"),
        ({"include": ["everything"]}, "InvalidQueryParameterValue"),
        ({"marker": "!"}, "InvalidQueryParameterValue"),
    ],
)
def test_a_listing_that_asks_for_what_cannot_be_is_refused(share, query, code):
    token = query.pop("marker", None)
    with pytest.raises(HttpResponseError) as refused:
        list(share.get_directory_client().list_directories_and_files(**query).by_page(token))
    assert refused.value.error_code == code


def test_what_a_node_makes_and_removes_is_seen(share, folder):
    directory = share.create_directory("r1", metadata=METADATA)
    directory.upload_file("a", b"1")
    (folder / "r1" / "a").unlink()
    (folder / "r1" / "b").mkdir()
    (folder / "r1" / "a").write_text("another")
    listed = {item.name: item.is_directory for item in directory.list_directories_and_files()}
    assert listed == {"a": False, "b": True}
    assert directory.get_file_client("a").get_file_properties().size == len("another")
    assert directory.get_directory_properties().metadata == METADATA


def test_links_lead_nowhere(share, folder, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "file").symlink_to(tmp_path / "outside" / "secret")
    assert names(share.list_directories_and_files()) == []
    for path in ("file", "link/secret"):
        with pytest.raises(ResourceNotFoundError):
            share.get_file_client(path).download_file()
    with pytest.raises(ResourceNotFoundError):
        share.get_file_client("link/new").create_file(1)
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]
