from __future__ import annotations

import pytest
from azure.core.exceptions import ResourceNotFoundError

from .conftest import SUBSCRIPTION, Play, Subscription, deployment, machine, refusal, until
from .contract import Contract


def test_a_group_is_made_found_by_its_tags_and_changed(subscription: Subscription) -> None:
    groups = subscription.client.resource_groups
    subscription.group("run", owner="me", other="1")
    subscription.group("Theirs", owner="it's them")

    assert groups.get("RUN").name == "run"
    assert groups.check_existence("theirs")
    assert not groups.check_existence("nobodys")
    assert [group.name for group in groups.list()] == ["run", "Theirs"]
    assert [group.name for group in groups.list(filter="tagName eq 'Owner'")] == ["run", "Theirs"]
    assert [group.name for group in groups.list(filter="tagName eq 'owner' and tagValue eq 'me'")] == ["run"]
    wanted = "tagName eq 'owner' and tagValue eq 'it''s them'"
    assert [group.name for group in groups.list(filter=wanted)] == ["Theirs"]

    subscription.group("run", owner="somebody else")
    assert dict(groups.get("run").tags or {}) == {"owner": "somebody else"}


def test_a_listing_comes_in_pages(subscription: Subscription) -> None:
    for number in range(5):
        subscription.group(f"run-{number}", owner="me")
    before = subscription.stand_in.calls["GET groups"]
    listed = subscription.client.resource_groups.list(filter="tagName eq 'owner' and tagValue eq 'me'", top=2)
    assert [group.name for group in listed] == [f"run-{number}" for number in range(5)]
    assert subscription.stand_in.calls["GET groups"] - before == 3


def test_a_deletion_finishes_later_and_takes_everything(subscription: Subscription) -> None:
    groups = subscription.client.resource_groups
    subscription.group()
    subscription.deploy(machine(script="#!/bin/sh\necho begun; sleep 600"))
    subscription.clock.advance(60)
    until(lambda: "begun" in subscription.said())

    poller = groups.begin_delete("run", force_deletion_types="Microsoft.Compute/virtualMachines")
    assert groups.get("run").properties.provisioning_state == "Deleting"
    assert refusal(lambda: subscription.group()) == (409, "ResourceGroupBeingDeleted")
    assert refusal(lambda: subscription.deploy(machine())) == (409, "ResourceGroupBeingDeleted")
    groups.begin_delete("run", polling=False)

    subscription.clock.advance(60)
    poller.result(60)
    with pytest.raises(ResourceNotFoundError):
        groups.get("run")
    assert subscription.powers() == {}
    subscription.group()
    assert refusal(lambda: subscription.deployed()) == (404, "DeploymentNotFound")


def test_slow_deletes_last_as_long_as_the_scenario_says(play: Play) -> None:
    subscription = play(delete_s=600.0)
    subscription.group()
    subscription.client.resource_groups.begin_delete("run", polling=False)
    subscription.clock.advance(590)
    assert subscription.client.resource_groups.check_existence("run")
    subscription.clock.advance(20)
    until(lambda: not subscription.client.resource_groups.check_existence("run"))


def test_what_is_not_there_or_makes_no_sense_is_refused(subscription: Subscription) -> None:
    groups = subscription.client.resource_groups
    subscription.group()
    assert refusal(lambda: groups.get("other")) == (404, "ResourceGroupNotFound")
    assert refusal(lambda: groups.begin_delete("other")) == (404, "ResourceGroupNotFound")
    assert refusal(lambda: groups.create_or_update("run", {"location": "westus"})) == (
        409,
        "InvalidResourceGroupLocation",
    )
    assert refusal(lambda: subscription.send("PUT", "/resourcegroups/run.", {"location": "eastus"})) == (
        400,
        "InvalidResourceGroup",
    )
    assert refusal(lambda: subscription.send("PUT", "/resourcegroups/new", {"tags": {}})) == (400, "LocationRequired")
    assert refusal(lambda: list(groups.list(filter="name eq 'run'"))) == (400, "InvalidFilterInQueryString")
    assert refusal(lambda: subscription.send("GET", deployment(), version="2010-01-01")) == (
        400,
        "InvalidApiVersionParameter",
    )
    assert refusal(lambda: subscription.send("GET", "/providers/Microsoft.Other/things")) == (
        404,
        "InvalidResourceType",
    )


def test_only_the_right_token_opens_it(subscription: Subscription) -> None:
    nobody, wrong = subscription.connect(None), subscription.connect("another")
    assert refusal(lambda: nobody.resource_groups.get("run")) == (401, "AuthenticationFailed")
    assert refusal(lambda: wrong.resource_groups.get("run")) == (401, "InvalidAuthenticationToken")


def test_another_subscription_is_not_there(subscription: Subscription) -> None:
    client = subscription.connect()
    client._config.subscription_id = SUBSCRIPTION.replace("1", "9")
    assert refusal(lambda: list(client.resource_groups.list())) == (404, "SubscriptionNotFound")


def test_a_client_that_is_throttled_comes_through(play: Play) -> None:
    subscription = play(throttle_every=2, retry_after_s=0)
    for number in range(4):
        subscription.group(f"run-{number}")
    assert len(list(subscription.client.resource_groups.list())) == 4


def test_an_answer_that_was_lost_is_asked_for_again(play: Play) -> None:
    subscription = play(fail_after_success=1)
    subscription.group(owner="me")
    assert subscription.stand_in.calls["PUT group"] == 2
    assert dict(subscription.client.resource_groups.get("run").tags or {}) == {"owner": "me"}


def test_what_was_said_is_what_the_document_describes(subscription: Subscription, seen: Contract | None) -> None:
    if seen is None:
        pytest.skip("Microsoft's document is not beside this checkout")
    subscription.group("run", owner="me")
    list(subscription.client.resource_groups.list())
    subscription.client.resource_groups.begin_delete("run", polling=False)
    made = {("ResourceGroups_CreateOrUpdate", 201), ("ResourceGroups_List", 200), ("ResourceGroups_Delete", 202)}
    assert made <= seen.checked
