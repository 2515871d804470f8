"""What every request meets: signatures, versions, conditions, pages, filters, errors as the service words them."""

from __future__ import annotations

import base64
import http.client
import json
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

import pytest
from azure.batch import BatchClient
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceModifiedError,
)
from azure.core.rest import HttpRequest

from .conftest import ACCOUNT, KEY, pool_body, refusal

VERSION = "2025-06-01"


def ask(account, method, path, headers=None, body=None):
    """One signed request as the SDK sends it, and the answer as it comes, be it an error."""
    more = {"json": body} if body is not None else {}
    return answer_to(account, HttpRequest(method, path, headers=headers or {}, **more))


def answer_to(account, request):
    try:
        response = account.client.send_request(request, stream=True)
    except HttpResponseError as error:
        response = error.response
    response.read()
    return response


def send(url, method="GET", headers=None):
    """One request without a signature of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", headers=headers or {})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_a_wrong_key_is_refused(account):
    for name, key in ((ACCOUNT, base64.b64encode(b"another key").decode()), ("another", KEY)):
        with BatchClient(account.url, AzureNamedKeyCredential(name, key)) as client:
            with pytest.raises(HttpResponseError) as refused:
                list(client.list_pools())
            assert refused.value.status_code == 403
            assert json.loads(refused.value.response.text())["code"] == "AuthenticationFailed"
    assert account.stand_in.calls.total() == 0


def test_a_request_without_a_signature_is_refused(account):
    status, headers, body = send(f"{account.url}/pools?api-version={VERSION}")
    assert (status, headers["WWW-Authenticate"].split()[0]) == (401, "SharedKey")
    assert json.loads(body)["code"] == "AuthenticationFailed"


def test_an_old_signature_is_refused(account):
    old = datetime.now(timezone.utc) - timedelta(hours=1)
    with pytest.raises((HttpResponseError, ClientAuthenticationError)) as refused:
        list(account.client.list_pools(ocp_date=old))
    assert refused.value.status_code == 403


def test_a_signature_is_of_one_request_only(account):
    sent = {}
    list(account.client.list_pools(raw_request_hook=lambda request: sent.update(request.http_request.headers)))
    path = f"api-version={VERSION}"
    assert send(f"{account.url}/pools?{path}", headers=sent)[0] == 200
    assert send(f"{account.url}/jobs?{path}", headers=sent)[0] == 403
    assert send(f"{account.url}/pools?{path}&maxresults=5", headers=sent)[0] == 403


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/pools?api-version=2017-01-01.4.0", 400, "UnsupportedRequestVersion"),
        ("/pools", 400, "UnsupportedRequestVersion"),
        (f"/nothing?api-version={VERSION}", 404, "ResourceNotFound"),
        (f"/jobschedules?api-version={VERSION}", 501, "NotImplemented"),
        (f"/applications/a?api-version={VERSION}", 501, "NotImplemented"),
        (f"/pools/p/nodes/n/remoteloginsettings?api-version={VERSION}", 501, "NotImplemented"),
        (f"/pools?maxresults=0&api-version={VERSION}", 400, "OutOfRangeQueryParameterValue"),
        (f"/pools?maxresults=1001&api-version={VERSION}", 400, "OutOfRangeQueryParameterValue"),
        (f"/pools?$filter=color%20eq%20%27red%27&api-version={VERSION}", 400, "InvalidQueryParameterValue"),
        (f"/pools?$filter=id%20like%20%27a%27&api-version={VERSION}", 400, "InvalidQueryParameterValue"),
        (f"/pools?$select=id,color&api-version={VERSION}", 400, "InvalidQueryParameterValue"),
        (f"/pools?$expand=nodes&api-version={VERSION}", 400, "InvalidQueryParameterValue"),
    ],
)
def test_what_cannot_be_answered_is_refused_as_the_service_does(make_account, path, status, code):
    account = make_account(check=False)
    account.client.create_pool(pool_body("pool", 0))
    answer = ask(account, "GET", path)
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code)
    assert set(body) <= {"odata.metadata", "code", "message", "values"}
    assert set(body["message"]) == {"lang", "value"}
    assert f"RequestId:{answer.headers['request-id']}" in body["message"]["value"]
    assert answer.headers["Content-Type"] == "application/json; odata=minimalmetadata"


def test_a_verb_that_a_resource_does_not_have_is_refused(make_account):
    account = make_account(check=False)
    assert ask(account, "PUT", f"/pools?api-version={VERSION}", body={}).status_code == 405


def test_a_body_must_be_json_in_the_media_type(make_account):
    account = make_account(check=False)
    path = f"/pools?api-version={VERSION}"
    request = HttpRequest("POST", path, headers={"content-type": "text/plain"}, content=b"{}")
    assert answer_to(account, request).status_code == 415
    request = HttpRequest("POST", path, headers={"content-type": "application/json"}, content=b"{")
    assert answer_to(account, request).json()["code"] == "InvalidRequestBody"


def test_both_versions_of_the_interface_are_served(make_account):
    account = make_account(check=False)
    body = pool_body("pool", 1, resourceTags={"a": "b"}, targetNodeCommunicationMode="simplified")
    former, path = "2024-02-01.19.0", "/pools?api-version={}"
    assert ask(account, "POST", path.format(VERSION), body=body).json()["code"] == "InvalidRequestBody"
    assert ask(account, "POST", path.format(former), body=body).status_code == 201
    account.settle()
    nodes = [ask(account, "GET", f"/pools/pool/nodes?api-version={version}").json() for version in (former, VERSION)]
    assert ["ipv6Address" in listed["value"][0] for listed in nodes] == [False, True]


def test_the_clients_id_of_a_request_is_echoed_where_it_asks_for_that(account):
    headers = {"client-request-id": "00000000-0000-0000-0000-000000000001"}
    path = f"/pools?api-version={VERSION}"
    assert "client-request-id" not in ask(account, "GET", path, headers).headers
    answer = ask(account, "GET", path, {**headers, "return-client-request-id": "true"})
    assert answer.headers["client-request-id"] == headers["client-request-id"]


def test_listings_come_in_pages_and_keep_their_filter(account):
    for number in range(7):
        account.client.create_pool(pool_body(f"p-{number}", 0))
        account.client.create_pool(pool_body(f"q-{number}", 0))
    before = account.stand_in.calls["GET /pools"]
    listed = account.client.list_pools(filter="startswith(id,'P-') and state eq 'active'", max_results=3)
    assert [pool.id for pool in listed] == [f"p-{number}" for number in range(7)]
    assert account.stand_in.calls["GET /pools"] == before + 3


def test_pages_follow_each_other_though_something_is_deleted_between(account):
    for number in range(4):
        account.client.create_pool(pool_body(f"p-{number}", 0))
    pages = account.client.list_pools(max_results=2).by_page()
    first = [pool.id for pool in next(pages)]
    account.begin("delete_pool", "p-1")
    account.settle()
    assert first + [pool.id for page in pages for pool in page] == ["p-0", "p-1", "p-2", "p-3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id eq 'A'", ["a"]),
        ("id ne 'a'", ["b", "it's"]),
        ("id eq 'it''s'", ["it's"]),
        ("startswith(id, 'i') and state eq 'active'", ["it's"]),
        ("creationTime ge datetime'2020-01-01T00:00:00Z'", ["a", "b", "it's"]),
        ("creationTime lt datetime'2020-01-01T00:00:00Z'", []),
        ("startswith(id,'a and b')", []),
    ],
)
def test_filters_are_understood(text, expected):
    from cloudbench.rehearsal.azure_batch.query import listing

    items = [
        {"id": name, "state": "active", "creationTime": "2026-01-01T00:00:00.0000000Z"} for name in ("b", "a", "it's")
    ]
    fields = {"id", "state", "creationTime"}
    page = listing(items, {"$filter": text}, url="", model="BatchPool", key="id", fields=fields)
    assert [item["id"] for item in page["value"]] == expected


def test_only_what_is_selected_is_told(account):
    account.client.create_pool(pool_body("pool", 0))
    path = f"/pools/pool?$select=id,state&api-version={VERSION}"
    assert set(ask(account, "GET", path).json()) == {"odata.metadata", "id", "state"}
    (pool,) = account.client.list_pools(select=["id", "allocationState"])
    assert (pool.id, pool.allocation_state) == ("pool", "steady")


def test_a_version_is_read_once_and_written_once(account):
    account.client.create_pool(pool_body("pool", 0))
    etag = account.client.get_pool("pool").etag
    unchanged = {"etag": etag, "match_condition": MatchConditions.IfModified}
    with pytest.raises(HttpResponseError) as same:
        account.client.get_pool("pool", **unchanged)
    assert same.value.status_code == 304
    account.client.update_pool("pool", {"metadata": []}, etag=etag, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(ResourceModifiedError) as refused:
        account.client.update_pool("pool", {"metadata": []}, etag=etag, match_condition=MatchConditions.IfNotModified)
    assert refused.value.model.code == "ConditionNotMet"
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    with pytest.raises(HttpResponseError) as same:
        account.client.get_pool("pool", if_modified_since=later)
    assert same.value.status_code == 304
    account.client.get_pool("pool", if_unmodified_since=later)


def test_whether_a_pool_exists_is_told_by_head(account):
    account.client.create_pool(pool_body("pool", 0))
    assert [ask(account, "HEAD", f"/pools/{name}?api-version={VERSION}").status_code for name in ("pool", "no")] == [
        200,
        404,
    ]


def test_images_and_applications_are_listed(account):
    images = list(account.client.list_supported_images(filter="verificationType eq 'verified'"))
    assert ("ubuntu-hpc", "batch.node.ubuntu 22.04") in [
        (image.image_reference.offer, image.node_agent_sku_id) for image in images
    ]
    assert {image.verification_type for image in images} == {"verified"}
    assert list(account.client.list_applications()) == []


def test_an_error_of_the_service_is_the_sdks_model(account):
    assert refusal(lambda: account.client.get_pool("none")) == (404, "PoolNotFound")
    assert refusal(lambda: account.client.get_node("none", "n")) == (404, "PoolNotFound")
    assert refusal(lambda: account.client.get_task("none", "t")) == (404, "JobNotFound")
