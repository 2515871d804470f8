"""`cloudbench submit`: one setup, from the command line."""

from __future__ import annotations

import click

from cloudbench.cli import options


@click.command(
    epilog="""\b
Examples:
  cloudbench submit --nodes 2 --set model=resnet20 --set batch_size=32
  cloudbench submit --nodes 2 --gpus-per-node 2 --set variable_update=horovod --repeat 3
  cloudbench submit --service docker --image cloudbench-cpu --detach
  cloudbench submit --provider azure --sku NC12 --nodes 2 --rehearse
  cloudbench submit --template my_training.yaml --set epochs=2 --dry-run"""
)
@click.option("--provider", type=click.Choice(["local", "azure", "aws"]), help="Where to run.  [default: local]")
@click.option(
    "--service",
    help="The provider's service: process or docker here, batch or vm on azure, batch or ec2 on aws.",
    shell_complete=options.complete_service,
)
@click.option("--sku", help="Machine size, such as NC12 or p3.8xlarge.", shell_complete=options.complete_sku)
@click.option("--nodes", type=click.IntRange(min=1), help="Machines.  [default: 1]")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    help="GPUs, and so ranks, on each.  [default: all that the size has; 1 here]",
)
@click.option(
    "--priority",
    type=click.Choice(["dedicated", "low-priority"]),
    help="Low-priority machines cost less, and may be taken back.  [default: dedicated]",
)
@click.option("--storage", help="What the nodes mount: azure-files, azure-blob/CONTAINER, efs, or local for none.")
@click.option("--pool", metavar="NAME", help="Azure Batch: keep machines for the next run, and use those kept.")
@click.option("--image", help="Container image.")
@click.option(
    "--setup",
    "setup_name",
    cls=options.SetupOption,
    metavar="NAME",
    help="Start from this setup; other options change it.",
    shell_complete=options.complete_setup,
)
@click.option(
    "--template",
    default="tf_cnn_benchmarks",
    show_default=True,
    metavar="NAME|FILE",
    help="What to run.",
    shell_complete=options.complete_template,
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter of the template.",
    shell_complete=options.complete_parameter,
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Times to run it.")
@click.option("--label", metavar="TEXT", help="Its name in the summary.")
@click.option("--timeout", default="30m", show_default=True, metavar="DURATION", help="Limit for each run: 90s, 1h30m.")
@click.option(
    "--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Refuse what can cost more."
)
@options.launch_options
def submit(
    chosen: options.LaunchOptions,
    provider: str | None,
    service: str | None,
    sku: str | None,
    nodes: int | None,
    gpus_per_node: int | None,
    priority: str | None,
    storage: str | None,
    pool: str | None,
    image: str | None,
    setup_name: str | None,
    template: str,
    assignments: tuple[str, ...],
    repeat: int,
    label: str | None,
    timeout: str,
    max_cost: float | None,
) -> int:
    """Run a training job on one setup and print its summary row."""
    import msgspec

    from cloudbench.cli.launch import launch
    from cloudbench.errors import UsageError
    from cloudbench.loading import load_setup, load_template
    from cloudbench.plan import parameter_value
    from cloudbench.spec import Experiment, Setup

    loaded = load_template(template)
    parameters = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment}: expected KEY=VALUE", todo=f"cloudbench templates {template}")
        parameters[key] = parameter_value(loaded, key, value)
    given = {
        "name": label,
        "provider": provider,
        "service": service,
        "sku": sku,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "priority": priority,
        "storage": storage,
        "pool": pool,
        "image": image,
    }
    setup = msgspec.structs.replace(
        load_setup(setup_name) if setup_name else Setup(),
        **{key: value for key, value in given.items() if value is not None},
    )
    experiment = Experiment(
        name=loaded.name,
        templates=(template,),
        parameters=parameters,
        setups=(setup,),
        repeats=repeat,
        timeout=timeout,
        max_cost_usd=max_cost,
    )
    return launch(experiment, {template: loaded}, chosen, keep=frozenset(parameters))
