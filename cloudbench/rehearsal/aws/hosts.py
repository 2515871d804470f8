"""EC2 instances with machines behind them, those of AWS Batch's compute environments as well.

moto keeps what can be described; an instance of moto's alone runs at once, runs nothing and is terminated at once.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudbench.rehearsal.aws.cloud import instance_type
from cloudbench.rehearsal.aws.wire import AwsError

if TYPE_CHECKING:
    from cloudbench.rehearsal.aws.world import AwsWorld
    from cloudbench.rehearsal.machines import Machine

STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
NOTICE_S = 120.0
INTERRUPTED = "Server.SpotInstanceTermination"
_SHUT_DOWN = "Client.InstanceInitiatedShutdown"
_BY_USER = "Client.UserInitiatedShutdown"


class Host:
    """One instance. `ready` is called when it runs, `lost` with the reason when it is taken away.

    Args:
        instance: moto's, whose state follows this one's.
        group: instances that were asked for together count their numbers from 0.
    """

    def __init__(self, hosts: Hosts, instance: Any, *, index: int, count: int) -> None:
        self.id: str = instance.id
        self.type: str = instance.instance_type
        self.spot = instance.lifecycle == "spot"
        self.index = index
        self.ready: Callable[[], None] = lambda: None
        self.lost: Callable[[str], None] = lambda reason: None
        self.interrupted_at: float | None = None
        self._hosts = hosts
        self._world = hosts.world
        self.instance = instance
        self._count = count
        self._awaited = 0
        self.machine: Machine = self._world.machines.start(self.id)
        # The address that the service tells is the one where the machine answers.
        for nic in instance.nics.values():
            nic.private_ip_address = self.machine.address
            nic.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": self.machine.address}]
        self._enter("pending")
        self._world.timers.after(self._world.scenario.boot_s, self._boot)

    @property
    def state(self) -> str:
        """As EC2 names it."""
        return str(self.instance.state)

    @property
    def alive(self) -> bool:
        """Whether it is there, or about to be."""
        return self.state in ("pending", "running")

    @property
    def address(self) -> str:
        """Its private address."""
        return self.machine.address

    @property
    def vcpus(self) -> int:
        """As many as its type has."""
        known = instance_type(self.type) or {}
        return int(known.get("VCpuInfo", {}).get("DefaultVCpus", 1))

    @property
    def user_data(self) -> str:
        """The script that it begins with, or nothing."""
        data = self.instance.user_data
        return str(data.decode()) if data else ""

    @property
    def zone(self) -> str:
        """Its availability zone."""
        return str(self.instance.availability_zone)

    def terminate(self, code: str = _BY_USER, message: str = "User initiated shutdown") -> None:
        """Take it away, with everything that runs on it; the reason is there to be read."""
        if self.state in ("shutting-down", "terminated"):
            return
        self.instance.terminate()
        self._enter("shutting-down", code, message)
        self._awaited = 2
        self._world.end(self.machine, self._gone)
        self._world.timers.after(self._world.scenario.delete_s, self._gone)
        self.lost(f"Host EC2 (instance {self.id}) terminated.")

    def shut_down(self) -> None:
        """What its own `shutdown` brings about."""
        if self.instance.instance_initiated_shutdown_behavior == "terminate":
            self.terminate(_SHUT_DOWN, "Instance initiated shutdown")
        else:
            self.stop(_SHUT_DOWN, "Instance initiated shutdown")

    def stop(self, code: str = _BY_USER, message: str = "User initiated shutdown") -> None:
        """Stop it for good: the stand-in starts none a second time."""
        if self.alive:
            self._enter("stopped", code, message)
            self._world.end(self.machine)

    def interrupt(self) -> None:
        """Lose it to the cloud's other customers.

        Raises:
            ValueError: it is no Spot instance.
        """
        if not self.spot:
            raise ValueError(f"{self.id} is no Spot instance")
        self.terminate(INTERRUPTED, "Spot instance termination")

    def _boot(self) -> None:
        if self.state != "pending":
            return
        self._enter("running")
        scenario = self._world.scenario
        if self.spot and scenario.interrupt_after_s is not None and self._is_chosen() and self._hosts.may_interrupt():
            self.interrupted_at = self._world.now + scenario.interrupt_after_s
            self._world.timers.after(scenario.interrupt_after_s, self.interrupt)
        self.ready()

    def _is_chosen(self) -> bool:
        return self.index == self._world.scenario.interrupted_node % self._count

    def _gone(self) -> None:
        """Its machine has ended, or its time is over: it is terminated once both hold."""
        self._awaited -= 1
        if not self._awaited:
            self._enter("terminated")
            self._hosts.changed()

    def _enter(self, state: str, code: str = "", message: str = "") -> None:
        from moto.ec2.models.instances import InstanceState, StateReason

        self.instance._state = InstanceState(state, STATES[state])
        if code:
            at = datetime.datetime.fromtimestamp(self._world.now, datetime.timezone.utc)
            self.instance._reason = f"{code.partition('.')[2]} ({at:%Y-%m-%d %H:%M:%S} GMT)"
            self.instance.state_reason = StateReason(f"{code}: {message}", code)


class Hosts:
    """All instances of the account. `changed` is called when one has gone."""

    def __init__(self, world: AwsWorld) -> None:
        self.world = world
        self.changed: Callable[[], None] = lambda: None
        self._hosts: dict[str, Host] = {}
        self._interruptions_left = world.scenario.interruptions

    def find(self, instance_id: str) -> Host | None:
        """The instance of that id."""
        return self._hosts.get(instance_id)

    def living(self) -> list[Host]:
        """All that are there."""
        return [host for host in self._hosts.values() if host.alive]

    def check_room(self, type_name: str, count: int) -> None:
        """Whether the account can have these instances.

        Raises:
            AwsError: why not, as EC2 says it.
        """
        scenario = self.world.scenario
        if scenario.no_capacity:
            raise AwsError(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {type_name} capacity in the Availability Zone you requested "
                f"({self.world.cloud.backend('ec2').region_name}a).",
                500,
            )
        if scenario.vcpu_limit is None:
            return
        known = instance_type(type_name) or {}
        wanted = count * int(known.get("VCpuInfo", {}).get("DefaultVCpus", 1))
        if sum(host.vcpus for host in self.living()) + wanted > scenario.vcpu_limit:
            raise AwsError(
                "VcpuLimitExceeded",
                "You have requested more vCPU capacity than your current vCPU limit of "
                f"{scenario.vcpu_limit} allows for the instance bucket that the specified instance type belongs to.",
            )

    def adopt(self, instances: Sequence[Any], *, group: str | None = None) -> list[Host]:
        """Put machines behind instances of moto that were asked for together, in a placement group or in none."""
        for instance in instances:
            instance.placement.group_name = group or ""
        made = [Host(self, instance, index=i, count=len(instances)) for i, instance in enumerate(instances)]
        self._hosts.update((host.id, host) for host in made)
        return made

    def launch(self, types: Sequence[str], resources: Mapping[str, Any], environment: str) -> list[Host]:
        """Instances of a compute environment with these resources, one for each of these types."""
        ec2 = self.world.cloud.backend("ec2")
        asked = {
            "image_id": "ami-ecs",
            "count": 1,
            "user_data": None,
            "security_group_names": [],
            "is_instance_type_default": False,
            "region_name": ec2.region_name,
            "subnet_id": resources["subnets"][0],
            "instance_market_options": "spot" if resources["type"] == "SPOT" else None,
            "instance_initiated_shutdown_behavior": "terminate",
        }
        made = []
        for name in types:
            groups = list(resources.get("securityGroupIds") or ())
            tags = {**(resources.get("tags") or {}), "aws:batch:compute-environment": environment}
            reservation = ec2.run_instances(
                **asked, instance_type=name, security_group_ids=groups, tags={"instance": tags}
            )
            made += reservation.instances
        return self.adopt(made, group=resources.get("placementGroup"))

    def in_group(self, name: str) -> bool:
        """Whether an instance is still in that placement group."""
        hosts = self._hosts.values()
        return any(host.instance.placement.group_name == name and host.state != "terminated" for host in hosts)

    def may_interrupt(self) -> bool:
        """Whether the scenario still has an interruption to give; it is counted."""
        if self._interruptions_left <= 0:
            return False
        self._interruptions_left -= 1
        return True
