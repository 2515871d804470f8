"""Virtual machines of one deployment: allocated, booted with their user data, taken back, deallocated."""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cloudbench.rehearsal.azure_resources.templates import user_data
from cloudbench.rehearsal.azure_resources.wire import Body, stamp
from cloudbench.rehearsal.guest import LIVES_WITH_THE_REHEARSAL, REQUESTS, install_programs, write_program

if TYPE_CHECKING:
    from cloudbench.rehearsal.azure_batch.world import AzureWorld
    from cloudbench.rehearsal.machines import Machine

_ALLOCATION_FAILED = (
    "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more about "
    "improving likelihood of allocation success at http://aka.ms/allocation-guidance"
)
_OS_TIMED_OUT = "OS Provisioning for VM '{name}' did not finish in the allotted time."

_LOOKED_EVERY_S = 0.5
_RUN = f"{LIVES_WITH_THE_REHEARSAL}exec ./user-data"
_BECOMES = {"deallocating": "deallocated", "stopping": "stopped"}

# Where a machine's disk is: its folder. These are the paths that user data may name.
_OWN_PATHS = re.compile(r"(?<![\w./-])/(?:var/lib|mnt)(?![\w.-])")
_ADDRESS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")

# mount -t cifs //HOST/SHARE PLACE -o credentials=FILE,...
_MOUNT = """\
case "${{3##*/}}" in
{cases}  *) echo "mount error(2): No such file or directory" >&2; exit 32;;
esac
file="$(printf %s "$6" | sed 's/.*credentials=\\([^,]*\\).*/\\1/')"
if [ "$(sha256sum <"$file" | cut -d' ' -f1)" != {digest} ]; then
  echo "mount error(13): Permission denied" >&2
  exit 32
fi
rmdir "$4" && ln -s "$folder" "$4"
"""


class MountableShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares that a virtual machine can mount: whose, the key that opens them, and the folder behind each name."""

    account: str
    key: str
    folders: Callable[[], Mapping[str, Path]]


class VirtualMachine:
    """One virtual machine. Everything happens under the world's lock, at the moment that is being played.

    Args:
        machine: what stands in for it; its `folder` is the disk.
        private_address: what the template calls it.
    """

    def __init__(self, world: AzureWorld, resource: Body, machine: Machine, private_address: str) -> None:
        self.id: str = resource["id"]
        self.name: str = resource["name"]
        self.location: str = resource["location"]
        self.tags: dict[str, str] = dict(resource.get("tags") or {})
        self.properties: Body = resource["properties"]
        self.state = "Creating"
        self.power: str | None = None
        self.error: tuple[str, str] | None = None
        self.address = machine.address
        self.private_address = private_address
        self._ending = 0
        self._world = world
        self._machine: Machine | None = machine
        self._changed_at = world.now

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._machine is None and not self._ending

    @property
    def is_spot(self) -> bool:
        """Whether the service may take it back."""
        return self.properties.get("priority") == "Spot"

    def fail(self, code: str, message: str) -> None:
        """It could not be had."""
        if self.state == "Creating":
            self._change("Failed", None)
            self.error = (code, message.format(name=self.name))
            self._end()

    def boot(self, addresses: Mapping[str, str], shares: MountableShares | None) -> None:
        """Run the user data; `addresses` has what stands in for each private address."""
        if self._machine is None or self.state != "Creating":
            return
        self._change("Succeeded", "running")
        folder = self._machine.folder
        for own_path in ("var/lib", "mnt"):
            (folder / own_path).mkdir(parents=True)
        install_programs(folder)
        _install_mount(folder / "bin", shares)
        script = user_data(self.properties)
        if script.startswith("#!"):
            own = _OWN_PATHS.sub(lambda found: f"{folder}{found[0]}", script)
            own = _ADDRESS.sub(lambda found: addresses.get(found[0], found[0]), own)
            path = folder / "user-data"
            path.write_text(own, "utf-8")
            path.chmod(0o700)
            said = folder / "cloud-init-output.log"
            self._machine.run(_RUN, cwd=folder, environment={}, stdout=said, stderr=said)
            self._watch(folder / REQUESTS)

    def deallocate(self) -> None:
        """Take the machine away; what it runs ends at once."""
        if self.power not in ("deallocating", "deallocated"):
            self._change(self.state, "deallocating")
            self._end()

    def delete(self) -> None:
        """Take the machine away for good."""
        self._change("Deleting", self.power)
        self._end()

    def statuses(self) -> list[Body]:
        """The statuses of the instance view."""
        code = f"ProvisioningState/{self.state.lower()}"
        provisioning: Body = {"code": code, "level": "Info", "displayStatus": self.state}
        provisioning["time"] = stamp(self._changed_at)
        if self.error:
            provisioning |= {"code": f"{code}/{self.error[0]}", "level": "Error", "message": self.error[1]}
        power = {"code": f"PowerState/{self.power}", "level": "Info", "displayStatus": f"VM {self.power}"}
        return [provisioning, *([power] if self.power else [])]

    def body(self, *, status_only: bool) -> Body:
        """The machine as listings show it; with its status the group's name is in capitals, as the service has it."""
        shown: Body = {"provisioningState": self.state}
        if status_only:
            shown["instanceView"] = {"statuses": self.statuses()}
        else:
            shown |= {key: value for key, value in self.properties.items() if key != "osProfile"}
        group = self.id.split("/")[4]
        body: Body = {"name": self.name, "type": "Microsoft.Compute/virtualMachines", "location": self.location}
        body["id"] = self.id.replace(f"/{group}/", f"/{group.upper()}/", 1) if status_only else self.id
        return {**body, **({"tags": self.tags} if self.tags else {}), "properties": shown}

    def _watch(self, requests: Path) -> None:
        """See whether the machine shut itself down: it stops, and is still the customer's, and billed."""
        if self.power != "running":
            return
        if requests.exists():
            self._change(self.state, "stopping")
            self._end()
        else:
            self._world.timers.after(_LOOKED_EVERY_S, functools.partial(self._watch, requests))

    def _change(self, state: str, power: str | None) -> None:
        self.state, self.power = state, power
        self._changed_at = self._world.now

    def _end(self) -> None:
        """End the machine without waiting for it here; what it is on its way to be it is when that is done."""
        machine, self._machine = self._machine, None
        self._ending += 1

        def ended() -> None:
            self._ending -= 1
            if self.ended and self.power in _BECOMES:
                self._change(self.state, _BECOMES[self.power])

        if machine is None:  # it was stopped before
            self._world.background(lambda: self._world.happens(ended))
        else:
            self._world.end(machine, ended)


def allocate(machines: list[VirtualMachine], world: AzureWorld, shares: MountableShares | None) -> None:
    """Let machines that were asked for come, or fail to, as the scenario says.

    Args:
        machines: those of one deployment, in the order of its template.
    """
    scenario, addresses = world.scenario, {machine.private_address: machine.address for machine in machines}
    granted = len(machines) if scenario.nodes_granted is None else scenario.nodes_granted
    booted_s = scenario.allocation_s + scenario.boot_s
    for index, machine in enumerate(machines):
        if index >= granted:
            what = functools.partial(machine.fail, "AllocationFailed", _ALLOCATION_FAILED)
            world.timers.after(scenario.allocation_s, what)
        elif index < scenario.unusable_nodes:
            world.timers.after(booted_s, functools.partial(machine.fail, "OSProvisioningTimedOut", _OS_TIMED_OUT))
        else:
            world.timers.after(booted_s, functools.partial(_boot, machine, machines, world, addresses, shares))


def shut_down_at(schedule: Body, now: float) -> float:
    """When a schedule shuts its machine down next, in seconds since 1970: a time of day in UTC."""
    time = str(schedule["dailyRecurrence"]["time"])
    moment = datetime.fromtimestamp(now, timezone.utc)
    at = moment.replace(hour=int(time[:2]), minute=int(time[2:]), second=0, microsecond=0)
    return (at if at > moment else at + timedelta(days=1)).timestamp()


def _boot(
    machine: VirtualMachine,
    machines: list[VirtualMachine],
    world: AzureWorld,
    addresses: Mapping[str, str],
    shares: MountableShares | None,
) -> None:
    machine.boot(addresses, shares)
    after, left = world.scenario.preempt_after_s, world.preemptions_left
    chosen = machines[world.scenario.preempted_node % len(machines)]
    if machine is chosen and machine.is_spot and after is not None and left:
        world.preemptions_left -= 1
        world.timers.after(after, machine.deallocate)


def _install_mount(folder: Path, shares: MountableShares | None) -> None:
    """A `mount` that shows the folders of shares to whoever has the key in the file that it names."""
    credentials = f"username={shares.account}\npassword={shares.key}\n" if shares else ""
    folders = shares.folders() if shares else {}
    cases = "".join(f"  {shlex.quote(name)}) folder={shlex.quote(str(path))};;\n" for name, path in folders.items())
    digest = hashlib.sha256(credentials.encode()).hexdigest()
    for name in ("mount", "mount.cifs"):
        write_program(folder / name, _MOUNT.format(cases=cases, digest=digest))
