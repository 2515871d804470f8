from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloudbench.rehearsal.aws import Scenario, programs
from cloudbench.rehearsal.machines import Machine
from tests.rehearsal.aws.conftest import Account, Clients, new_name, refusal, slow, until

TELL = """
tell() {
    python3 - "$1" <<'END'
import os, sys, urllib.request
service = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
life = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
ask = lambda path, method, headers: urllib.request.urlopen(
    urllib.request.Request(service + path, method=method, headers=headers)).read().decode()
token = ask("/latest/api/token", "PUT", life)
print(ask("/latest/meta-data/" + sys.argv[1], "GET", {"X-aws-ec2-metadata-token": token}))
END
}
"""


def request(script: str = "sleep 600", count: int = 1, **more: Any) -> dict[str, Any]:
    """What instances are asked for with, that run this as their user data."""
    return {
        "ImageId": "ami-dca37ea5",
        "InstanceType": "g4dn.12xlarge",
        "MinCount": count,
        "MaxCount": count,
        "ClientToken": new_name(),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "UserData": f"#!/bin/sh\n{script}\n",
        **more,
    }


def run(account: Account, script: str = "sleep 600", count: int = 1, **more: Any) -> list[str]:
    """Ask for instances, and let them boot; their ids."""
    made = account.ec2.run_instances(**request(script, count, **more))["Instances"]
    account.clock.advance(400)
    return [instance["InstanceId"] for instance in made]


def instance(account: Account, instance_id: str) -> Any:
    (found,) = account.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    return found["Instances"][0]


def state(account: Account, instance_id: str) -> str:
    return str(instance(account, instance_id)["State"]["Name"])


def console(account: Account, instance_id: str) -> list[str]:
    return str(account.ec2.get_console_output(InstanceId=instance_id)["Output"]).splitlines()


SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


def test_every_instance_runs_its_user_data_and_is_told_who_it_is(account: Account) -> None:
    script = f"{TELL}\nfor what in instance-id local-ipv4 ami-launch-index instance-life-cycle; do tell $what; done"
    ids = run(account, script, 2, **SPOT)
    for index, instance_id in enumerate(ids):
        until(lambda instance_id=instance_id: len(console(account, instance_id)) == 4)  # type: ignore[misc]
        found = instance(account, instance_id)
        assert console(account, instance_id) == [instance_id, found["PrivateIpAddress"], str(index), "spot"]
        assert found["PrivateIpAddress"].startswith("127.")
        assert (found["AmiLaunchIndex"], found["InstanceLifecycle"]) == (index, "spot")
    account.ec2.terminate_instances(InstanceIds=ids)


def test_an_instance_takes_its_time_to_come_and_to_go(account: Account) -> None:
    made = account.ec2.run_instances(**request())["Instances"][0]
    instance_id = made["InstanceId"]
    assert (made["State"]["Name"], made["PrivateIpAddress"][:4]) == ("pending", "127.")
    assert state(account, instance_id) == "pending"
    account.clock.advance(400)
    assert state(account, instance_id) == "running"
    (change,) = account.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    assert state(account, instance_id) == "shutting-down"
    account.clock.advance(200)
    until(lambda: state(account, instance_id) == "terminated")
    found = instance(account, instance_id)
    assert (found["State"]["Name"], found["StateReason"]["Code"]) == ("terminated", "Client.UserInitiatedShutdown")
    account.ec2.terminate_instances(InstanceIds=[instance_id])  # once more does no harm
    assert (
        refusal(lambda: account.ec2.terminate_instances(InstanceIds=["i-00000000"]))[0] == "InvalidInstanceID.NotFound"
    )


def test_an_instance_is_terminated_once_all_that_it_runs_has_ended(
    make_account: Callable[..., Account], monkeypatch: pytest.MonkeyPatch
) -> None:
    account, may_end, end = make_account(), threading.Event(), Machine.end
    monkeypatch.setattr(Machine, "end", lambda machine: [may_end.wait(), end(machine)])
    (instance_id,) = run(account)
    account.ec2.terminate_instances(InstanceIds=[instance_id])
    account.clock.advance(200)
    try:
        assert state(account, instance_id) == "shutting-down"
    finally:
        may_end.set()
    until(lambda: state(account, instance_id) == "terminated")


def test_a_client_token_makes_instances_once(account: Account) -> None:
    wanted = request(count=2)
    first, again = (account.ec2.run_instances(**wanted) for _ in range(2))
    assert first["ReservationId"] == again["ReservationId"]
    other = {**wanted, "InstanceType": "p2.xlarge"}
    assert refusal(lambda: account.ec2.run_instances(**other))[0] == "IdempotentParameterMismatch"
    account.ec2.terminate_instances(InstanceIds=[item["InstanceId"] for item in first["Instances"]])


def test_moto_alone_makes_them_again_runs_them_at_once_and_knows_no_placement_groups(moto: Clients) -> None:
    wanted = request()
    first, again = (moto("ec2").run_instances(**wanted) for _ in range(2))
    assert first["ReservationId"] != again["ReservationId"]
    found = moto("ec2").describe_instances(InstanceIds=[first["Instances"][0]["InstanceId"]])["Reservations"][0]
    assert found["Instances"][0]["State"]["Name"] == "running"
    moto("ec2").terminate_instances(InstanceIds=[first["Instances"][0]["InstanceId"]])
    found = moto("ec2").describe_instances(InstanceIds=[first["Instances"][0]["InstanceId"]])["Reservations"][0]
    assert found["Instances"][0]["State"]["Name"] == "terminated"


@pytest.mark.parametrize("behaviour", ["terminate", "stop"])
def test_an_instance_ends_itself_and_all_that_it_runs(account: Account, behaviour: str) -> None:
    more = {"InstanceInitiatedShutdownBehavior": behaviour}
    (instance_id,) = run(account, "sleep 600 & echo begun; shutdown -P now; sleep 600", **more)
    ended = "terminated" if behaviour == "terminate" else "stopped"
    until(lambda: state(account, instance_id) != "running")
    account.clock.advance(200)
    until(lambda: state(account, instance_id) == ended)
    assert instance(account, instance_id)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_shutdown_in_minutes_comes_by_the_clock_and_can_be_called_off(account: Account) -> None:
    (first,) = run(account, "shutdown -P +30; echo set; sleep 600")
    (second,) = run(account, "shutdown -P +30; shutdown -c; echo off; sleep 600")
    until(lambda: console(account, first) == ["set"] and console(account, second) == ["off"])
    account.clock.advance(29 * 60)
    assert state(account, first) == "running"
    account.clock.advance(120)
    until(lambda: state(account, first) != "running")
    assert state(account, second) == "running"
    account.ec2.terminate_instances(InstanceIds=[second])


def test_how_many_shutdowns_were_heard_is_never_seen_half_written(tmp_path: Path) -> None:
    programs.hear(tmp_path, 1)
    (heard,) = tmp_path.iterdir()
    with heard.open() as before:
        programs.hear(tmp_path, 2)
        assert (before.read(), heard.read_text()) == ("1\n", "2\n")
    assert list(tmp_path.iterdir()) == [heard]


def test_user_data_finds_its_own_places_and_nothing_that_would_change_this_machine(
    make_account: Callable[..., Account], tmp_path: Path
) -> None:
    (tmp_path / "fs-1234").mkdir()
    account = make_account(file_systems=tmp_path)
    source = "fs-1234.efs.us-east-1.amazonaws.com:/"
    script = (
        f"mkdir -p /mnt/efs /opt/x && mount -t nfs4 -o nfsvers=4.1 {source} /mnt/efs && echo here > /mnt/efs/file\n"
        "mount -t nfs4 fs-5678.efs.us-east-1.amazonaws.com:/ /opt/x || echo none\nmkfs.xfs /dev/x || echo left out\n"
        "mount -t nfs4 fs-1234.efs.us-east-1.amazonaws.com:/ /home || echo not mine"
    )
    (instance_id,) = run(account, script)
    until(lambda: "not mine" in console(account, instance_id))
    assert (tmp_path / "fs-1234" / "file").read_text() == "here\n"
    assert "none" in console(account, instance_id)
    assert "left out" in console(account, instance_id)
    for harmful in ("/sbin/shutdown -h now", "PATH=/usr/sbin:$PATH", "/usr/bin/mount a b"):
        wanted = request(harmful)
        refused = refusal(lambda wanted=wanted: account.ec2.run_instances(**wanted))  # type: ignore[misc]
        assert refused[0] == "InvalidUserData.NotForRehearsal"


def test_a_spot_instance_is_warned_then_taken_back(make_account: Callable[..., Account]) -> None:
    account = make_account(slow(interrupt_after_s=3000))
    ids = run(
        account, f"{TELL}\nuntil tell spot/instance-action 2>/dev/null; do sleep 0.05; done; sleep 600", 2, **SPOT
    )
    account.clock.advance(2500)
    assert console(account, ids[1]) == []
    account.clock.advance(300)
    until(lambda: console(account, ids[1]) != [])
    assert json.loads(console(account, ids[1])[0])["action"] == "terminate"
    account.clock.advance(300)
    until(lambda: state(account, ids[1]) == "terminated")
    assert instance(account, ids[1])["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert state(account, ids[0]) == "running"
    account.stand_in.interrupt(ids[0])  # on demand
    account.clock.advance(200)
    assert instance(account, ids[0])["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    (dedicated,) = run(account)
    with pytest.raises(ValueError, match="no Spot instance"):
        account.stand_in.interrupt(dedicated)
    with pytest.raises(LookupError, match="i-none"):
        account.stand_in.interrupt("i-none")


@pytest.mark.parametrize(
    ("scenario", "code"),
    [(slow(no_capacity=True), "InsufficientInstanceCapacity"), (slow(vcpu_limit=95), "VcpuLimitExceeded")],
)
def test_instances_are_made_all_or_none(make_account: Callable[..., Account], scenario: Scenario, code: str) -> None:
    account = make_account(scenario)
    assert refusal(lambda: account.ec2.run_instances(**request(count=2)))[0] == code
    assert account.instances() == []


def test_instances_just_made_may_not_be_seen_yet(make_account: Callable[..., Account]) -> None:
    account = make_account(slow(stale_reads_s=500))
    made = account.ec2.run_instances(**request())["Instances"][0]["InstanceId"]
    assert account.instances() == []
    assert refusal(lambda: instance(account, made))[0] == "InvalidInstanceID.NotFound"
    account.clock.advance(600)
    assert account.states() == ["running"]


def test_a_placement_group_is_there_for_its_instances_until_they_are_gone(account: Account) -> None:
    name = new_name()
    wanted = request(Placement={"GroupName": name})
    assert refusal(lambda: account.ec2.run_instances(**wanted))[0] == "InvalidPlacementGroup.Unknown"
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "owner", "Value": name}]}]
    account.ec2.create_placement_group(GroupName=name, Strategy="cluster", TagSpecifications=tags)
    mine = [{"Name": "tag:owner", "Values": [name]}]
    (found,) = account.ec2.describe_placement_groups(Filters=mine)["PlacementGroups"]
    assert (found["GroupName"], found["Tags"]) == (name, [{"Key": "owner", "Value": name}])
    made = account.ec2.run_instances(**wanted)["Instances"][0]["InstanceId"]
    assert instance(account, made)["Placement"]["GroupName"] == name
    assert refusal(lambda: account.ec2.delete_placement_group(GroupName=name))[0] == "InvalidPlacementGroup.InUse"
    account.ec2.terminate_instances(InstanceIds=[made])
    account.clock.advance(200)
    until(lambda: state(account, made) == "terminated")
    account.ec2.delete_placement_group(GroupName=name)
    assert refusal(lambda: account.ec2.describe_placement_groups(GroupNames=[name]))[0].endswith(".Unknown")


def test_metadata_is_told_to_those_with_a_token_only(account: Account) -> None:
    (instance_id,) = run(account)
    place = f"{account.url}/machines/{instance_id}/latest/meta-data/instance-id"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(place)  # noqa: S310
    with refused.value as error:
        assert error.code == 401
    account.ec2.terminate_instances(InstanceIds=[instance_id])


def test_user_data_that_is_no_script_is_left_alone(account: Account) -> None:
    (instance_id,) = run(account, UserData="just text")
    assert console(account, instance_id) == []
    account.ec2.terminate_instances(InstanceIds=[instance_id])
