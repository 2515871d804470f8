"""The few lines that bring the node program to a machine and start it. Pure: they are texts.

They need nothing but a Python of 3.8 or later, and one signed address, from which the others are read. What they leave
out is done by the node program itself.
"""

from __future__ import annotations

FILES_URL = "CLOUDBENCH_FILES_URL"
"""The variable that holds the signed address; it is taken away before anything else starts."""

_LOAD = """\
import json, os, subprocess, sys, tempfile, time, urllib.request

def ask(url, data=None, headers={}, method=None):
    for pause in [1, 2, 4, 8, 15, 15, 15, None]:
        try:
            request = urllib.request.Request(url, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except OSError as error:
            if pause is None:
                sys.exit("the files of the run cannot be reached: %s" % (getattr(error, "code", None) or error))
            time.sleep(pause)

def load(url):
    given = json.loads(ask(url))
    folder = tempfile.mkdtemp(prefix="cloudbench-")
    for name, address in given["files"].items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(ask(address))
    return folder, given
"""

_CONTAINER = """
folder, _ = load(os.environ.pop("CLOUDBENCH_FILES_URL"))
program, out = os.path.join(folder, "cloudbench-node.pyz"), os.path.join(folder, "out")
code = subprocess.call([sys.executable, program, "start", "--files", folder, "--out", out])
if code:
    sys.exit(code)
os.execv(sys.executable, [sys.executable, program, "wait", "--tell", "--out", out])
"""

# Which node an instance is: its index in the launch. Node 0 leaves its address in the bucket, where the others find it.
_INSTANCE = """
def tell(path, service=os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")):
    life = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    token = ask(service + "/latest/api/token", b"", life, "PUT").decode()
    return ask(service + "/latest/meta-data/" + path, headers={"X-aws-ec2-metadata-token": token}).decode().strip()

def meet(node, address, meeting):
    if node == 0:
        ask(meeting["put"], address.encode(), {"Content-Type": "application/octet-stream"}, "PUT")
        return address
    deadline = time.monotonic() + 600
    while True:
        try:
            with urllib.request.urlopen(meeting["get"], timeout=60) as answer:
                return answer.read().decode()
        except OSError:
            if time.monotonic() > deadline:
                sys.exit("node 0 never told its address")
            time.sleep(1)

nodes, options = int(sys.argv[1]), sys.argv[2:]
folder, given = load(sys.stdin.readline().strip())
node, address = int(tell("ami-launch-index")), tell("local-ipv4")
main = meet(node, address, given["meeting"]) if nodes > 1 else address
os.environ.update(
    CLOUDBENCH_NODE_INDEX=str(node),
    CLOUDBENCH_NODE_COUNT=str(nodes),
    CLOUDBENCH_NODE_ADDRESS=address,
    CLOUDBENCH_MAIN_ADDRESS=main,
    CLOUDBENCH_MAIN_PORT="29400",
)
program = os.path.join(folder, "cloudbench-node.pyz")
start = [sys.executable, program, "start", "--foreground", "--files", folder, "--out", os.path.join(folder, "out")]
os.execv(sys.executable, start + options)
"""


def container_program() -> str:
    """What `python3 -c` runs in a container of AWS Batch: the node program from its start to its end."""
    return _LOAD + _CONTAINER


def instance_program() -> str:
    """What `python3 -c` runs on an instance, with the number of nodes and options of `start` as its arguments.

    The signed address comes by the standard input, so that no process list has it.
    """
    return _LOAD + _INSTANCE
