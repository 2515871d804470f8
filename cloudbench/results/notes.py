"""The last column of a summary: in a few words what a run on a cloud was, for setups that do not say it. Pure."""

from __future__ import annotations

from cloudbench.plan import RunPlan

_SERVICES = {
    ("azure", "batch"): "Azure Batch",
    ("azure", "vm"): "DSVM",
    ("aws", "batch"): "AWS Batch",
    ("aws", "ec2"): "EC2",
}


def cloud_note(plan: RunPlan) -> str:
    """Service, image, priority, storage and size: `Azure Batch (python3)/lowpriority + azure files, NC12`."""
    setup = plan.setup
    service = _SERVICES.get((setup.provider, setup.service or "batch"), f"{setup.provider} {setup.service}")
    image = "python3" if plan.image == "none" else plan.image
    note = f"{service} ({image})" if image else service
    if setup.service in (None, "batch") or setup.priority != "dedicated":
        note += f"/{setup.priority.replace('-', '')}"
    if setup.storage:
        note += f" + {setup.storage.replace('-', ' ')}"
    return f"{note}, {setup.sku}"


def rehearsal_note(plan: RunPlan, *, on_gpus: bool) -> str:
    """What a rehearsal really trained: `rehearsed on CPU: resnet20, batch 32`."""
    model, batch_size = plan.parameters.get("model"), plan.parameters.get("batch_size")
    trained = [str(model)] if model is not None else []
    trained += [f"batch {batch_size}"] if batch_size is not None else []
    where = f"rehearsed on {'GPU' if on_gpus else 'CPU'}"
    return f"{where}: {', '.join(trained)}" if trained else where
