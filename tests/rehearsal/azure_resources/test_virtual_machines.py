from __future__ import annotations

import datetime

import psutil
import pytest

from cloudbench.rehearsal.azure_resources.virtual_machines import shut_down_at

from .conftest import ACCOUNT, KEY, Play, Subscription, machine, power, refusal, resource_id, schedule, until

SPOT = {"priority": "Spot", "evictionPolicy": "Deallocate", "billingProfile": {"maxPrice": -1}}
WAITS = "#!/bin/sh\necho $$ >pid; echo begun; sleep 600"


def is_alive(subscription: Subscription, name: str = "vm") -> bool:
    return psutil.pid_exists(int((subscription.disk(name) / "pid").read_text()))


def test_a_machine_has_a_disk_and_an_address_of_its_own(subscription: Subscription) -> None:
    subscription.group()
    script = "#!/bin/sh\nmkdir -p /var/lib/own && echo at 10.77.0.10 beside 10.77.0.11 >/var/lib/own/file; echo done"
    subscription.deploy([*machine("first", script), *machine("second", script, address="10.77.0.11")])
    subscription.clock.advance(60)
    told = []
    for name in ("first", "second"):
        until(lambda name=name: "done" in subscription.said(name))
        told.append((subscription.disk(name) / "var/lib/own/file").read_text())
    assert told[0] == told[1], "both know the same addresses"
    addresses = told[0].split()[1::2]
    assert len(set(addresses)) == 2
    assert all(address.startswith("127.") for address in addresses)


def test_the_instance_view_tells_how_a_machine_stands(subscription: Subscription) -> None:
    subscription.group()
    subscription.deploy(machine(script=WAITS))
    path = "/resourcegroups/run/providers/Microsoft.Compute/virtualMachines/vm/instanceView"
    before = subscription.send("GET", path, version="2024-07-01")["statuses"]
    assert [status["code"] for status in before] == ["ProvisioningState/creating"]
    subscription.clock.advance(60)
    after = subscription.send("GET", path, version="2024-07-01")["statuses"]
    assert [status["code"] for status in after] == ["ProvisioningState/succeeded", "PowerState/running"]
    missing = path.replace("/vm/", "/other/")
    assert refusal(lambda: subscription.send("GET", missing, version="2024-07-01")) == (404, "ResourceNotFound")


def test_the_listing_with_states_has_the_groups_name_in_capitals(subscription: Subscription) -> None:
    subscription.group()
    subscription.deploy(machine())
    path = "/providers/Microsoft.Compute/virtualMachines"
    [listed] = subscription.send("GET", path, version="2024-07-01", statusOnly="true")["value"]
    assert listed["id"] == resource_id("Microsoft.Compute/virtualMachines", "vm", group="RUN")
    assert power(listed["properties"]["instanceView"]["statuses"]) == ""
    [plain] = subscription.send("GET", path, version="2024-07-01")["value"]
    assert plain["id"] == resource_id("Microsoft.Compute/virtualMachines", "vm")
    assert "instanceView" not in plain["properties"]


def test_its_schedule_takes_a_machine_away_with_no_client_alive(subscription: Subscription) -> None:
    subscription.group()
    now = subscription.clock.now()
    time = datetime.datetime.fromtimestamp(now + 3600, datetime.timezone.utc)
    subscription.deploy([*machine(script=WAITS), schedule("vm", f"{time:%H%M}")])
    subscription.clock.advance(60)
    until(lambda: "begun" in subscription.said())
    subscription.clock.advance(3300)
    assert subscription.powers() == {"vm": "running"}
    assert is_alive(subscription)
    subscription.clock.advance(300)
    until(lambda: subscription.powers() == {"vm": "deallocated"})
    assert not is_alive(subscription)


@pytest.mark.parametrize(("clock", "time", "after_s"), [("10:00:30", "1001", 30), ("10:01:00", "1001", 86400)])
def test_a_schedule_means_the_next_such_time_of_day(clock: str, time: str, after_s: int) -> None:
    now = datetime.datetime.fromisoformat(f"2026-03-04T{clock}+00:00").timestamp()
    assert shut_down_at({"dailyRecurrence": {"time": time}}, now) - now == after_s


def test_a_spot_machine_is_taken_back_and_a_dedicated_one_is_not(play: Play) -> None:
    subscription = play(preempt_after_s=600.0)
    subscription.group()
    spots = [*machine("first", WAITS, **SPOT), *machine("second", WAITS, address="10.77.0.11", **SPOT)]
    subscription.deploy(spots)
    subscription.group("other")
    dedicated = [
        {**resource, "dependsOn": [], "properties": resource["properties"]} for resource in machine("third", WAITS)
    ]
    for resource in dedicated:
        profile = resource["properties"].get("networkProfile")
        if profile:
            profile["networkInterfaces"][0]["id"] = resource_id(
                "Microsoft.Network/networkInterfaces", "third", group="other"
            )
    subscription.deploy(dedicated, group="other")
    subscription.clock.advance(60)
    until(lambda: all("begun" in subscription.said(name) for name in ("first", "second")))
    subscription.clock.advance(600)
    until(lambda: subscription.powers()["second"] == "deallocated")
    assert subscription.powers() == {"first": "running", "second": "deallocated", "third": "running"}
    assert not is_alive(subscription, "second")


def test_a_machine_that_does_not_come_up_says_why(play: Play) -> None:
    subscription = play(unusable_nodes=1)
    subscription.group()
    subscription.deploy(machine())
    subscription.clock.advance(60)
    path = "/resourcegroups/run/providers/Microsoft.Compute/virtualMachines/vm/instanceView"
    [status] = subscription.send("GET", path, version="2024-07-01")["statuses"]
    assert status["code"] == "ProvisioningState/failed/OSProvisioningTimedOut"
    assert "vm" in status["message"]


@pytest.mark.parametrize(
    ("share", "key", "told"),
    [("bench", KEY, "bytes of it"), ("bench", "wrong", "mount error(13)"), ("other", KEY, "mount error(2)")],
)
def test_a_share_is_mounted_by_who_has_its_key(subscription: Subscription, share: str, key: str, told: str) -> None:
    subscription.group()
    (subscription.root / "share" / "file").write_text("bytes of it\n")
    script = (
        f"#!/bin/sh\nprintf 'username={ACCOUNT}\\npassword={key}\\n' >credentials; mkdir -p /mnt/share\n"
        f'mount -t cifs //127.0.0.1:1/{share} /mnt/share -o "credentials=$PWD/credentials,vers=3.1.1" 2>&1\n'
        "cat /mnt/share/file; echo done"
    )
    subscription.deploy(machine(script=script))
    subscription.clock.advance(60)
    until(lambda: "done" in subscription.said())
    assert told in subscription.said()
    assert ("bytes of it" in subscription.said()) == (told == "bytes of it")


def test_a_machine_that_shuts_itself_down_is_stopped_and_still_there(subscription: Subscription) -> None:
    subscription.group()
    subscription.deploy(
        machine(script="#!/bin/sh\necho $$ >pid; apt-get install everything; shutdown -h now; sleep 600")
    )
    subscription.clock.advance(60)
    until(lambda: subscription.powers() == {"vm": "stopped"})
    assert not is_alive(subscription)
    assert "apt-get would change this machine: left out" in subscription.said()


@pytest.mark.parametrize("line", ["/sbin/shutdown -h now", "PATH=/usr/bin", "exec /usr/bin/apt-get update"])
def test_user_data_that_would_reach_this_machine_is_refused(subscription: Subscription, line: str) -> None:
    subscription.group()
    refused = refusal(lambda: subscription.deploy(machine(script=f"#!/bin/sh\n{line}\n")))
    assert refused == (400, "NotForRehearsal")
