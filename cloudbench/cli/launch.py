"""From an experiment to a printed summary: what `submit` and `run` have in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

import click
import msgspec

from cloudbench.cli.aws_settings import parse_aws_options
from cloudbench.cli.azure_settings import parse_azure_options
from cloudbench.cli.options import LaunchOptions
from cloudbench.cli.session import Session, exit_code, refuse_problems, tell_failures
from cloudbench.cost import limit_cost, price_basis
from cloudbench.errors import LimitError, UsageError
from cloudbench.plan import Rehearsal, RunPlan, plan_experiment
from cloudbench.providers.base import Problem
from cloudbench.spec import Experiment, JobTemplate

_REHEARSAL = (
    "This is a rehearsal: the cloud is played by this machine, whose processes are the nodes. It costs nothing, "
    "and its figures are this machine's."
)


def launch(
    experiment: Experiment,
    templates: Mapping[str, JobTemplate],
    chosen: LaunchOptions,
    *,
    keep: frozenset[str] = frozenset(),
) -> int:
    """Plan the experiment, check it, run it and print its summary; the exit code.

    Args:
        keep: parameters that a rehearsal does not shrink, because a person gave them on the way.
    """
    _refuse_options(experiment, chosen)
    session = Session(
        detach=chosen.detach,
        progress=True,
        azure=parse_azure_options(chosen.azure),
        aws=parse_aws_options(chosen.aws),
        scenario=chosen.scenario,
    )
    plans = plan_experiment(
        experiment,
        templates,
        owner=session.store.owner,
        submission=session.store.next_submission(experiment.name),
        rehearsal=Rehearsal(full_size=chosen.full_size, keep=keep) if chosen.rehearse else None,
        retries=chosen.retries,
    )
    if chosen.rehearse:
        click.echo(_REHEARSAL, err=True)
    plans = session.with_accounts(plans)
    if chosen.dry_run:
        _print_requests(session, plans, chosen.output_format)
    _refuse_cost(plans)
    _refuse(session, plans, detach=chosen.detach)
    if chosen.dry_run:
        return 0
    _confirm(plans, ask=not chosen.yes)
    session.store.add(plans, at=time.time())
    run_ids = [plan.id for plan in plans]
    runs = session.drive(run_ids, detach=chosen.detach)
    tell_failures(runs)
    if chosen.detach and not all(run.finished for run in runs):
        _print_detached(run_ids, chosen.output_format)
        return exit_code(runs)

    from cloudbench.cli.summary import print_summary

    print_summary(session, run_ids, chosen.output_format)
    return exit_code(runs)


def _refuse_options(experiment: Experiment, chosen: LaunchOptions) -> None:
    """Refuse options that contradict each other, or the experiment."""
    if chosen.full_size and not chosen.rehearse:
        raise UsageError("--full-size: only a rehearsal shrinks a job", todo="add --rehearse, or leave it out")
    if chosen.rehearse and any(setup.provider == "local" for setup in experiment.setups):
        raise UsageError(
            "--rehearse: the local provider trains on this machine already",
            todo="leave --rehearse out, or name a cloud: --provider azure, --provider aws",
        )
    if chosen.rehearse and sys.platform == "win32":
        raise UsageError("--rehearse: nodes of a rehearsal need Linux", todo="rehearse in WSL")
    if chosen.scenario and not chosen.rehearse:
        raise UsageError("--scenario: only a rehearsal goes by one", todo="add --rehearse, or leave it out")
    if chosen.rehearse and chosen.detach:
        raise UsageError(
            "--detach: the stand-ins of a rehearsal live in this command, and end with it",
            todo="leave --detach out; or keep stand-ins up with cloudbench rehearse --serve, and submit to those",
        )
    _refuse_idle_settings(experiment, chosen)


def _refuse_idle_settings(experiment: Experiment, chosen: LaunchOptions) -> None:
    """Refuse settings of an account in which nothing would run: whoever gives them means something else."""
    providers = {setup.provider for setup in experiment.setups}
    for provider, given in (("azure", chosen.azure), ("aws", chosen.aws)):
        if given and provider not in providers:
            raise UsageError(
                f"--{provider} {given[0]}: nothing is to run there",
                why=f"the provider is {' and '.join(sorted(providers))}",
                todo=f"choose {provider} as provider, or leave the setting out",
            )
        if given and chosen.rehearse:
            raise UsageError(
                f"--{provider} {given[0]}: a rehearsal has an account of its own",
                todo="leave the setting out, or leave --rehearse out",
            )


def _refuse(session: Session, plans: Sequence[RunPlan], *, detach: bool) -> None:
    """Everything that speaks against these plans, before anything is remembered or started."""
    problems: list[Problem] = []
    for plan in plans:
        provider = session.provider_for(plan)
        if detach and provider.capacity is not None and len(plans) > provider.capacity:
            raise UsageError(
                f"--detach: these {len(plans)} runs take turns on this machine, and someone must give them their turns",
                todo="leave --detach out, or submit them one by one",
            )
        problems.extend(provider.check(provider.render(plan, 1)))
    refuse_problems(problems)


def _refuse_cost(plans: Sequence[RunPlan]) -> None:
    """Refuse what can cost more than its limit, and a limit that cannot be kept."""
    for plan in plans:
        cost_usd, reason = limit_cost(plan)
        if plan.max_cost_usd is None:
            continue
        if cost_usd is None:
            raise UsageError(f"--max-cost cannot be kept for {plan.label}", why=reason, todo="leave it out")
        if cost_usd > plan.max_cost_usd:
            raise LimitError(
                f"{plan.label} can cost {cost_usd:.2f} USD until its machines are ended, more than "
                f"{plan.max_cost_usd:.2f}",
                why=price_basis(plan),
                todo="shorten --timeout, or raise --max-cost",
            )


def _confirm(plans: Sequence[RunPlan], *, ask: bool) -> None:
    """Ask before any money is spent."""
    billed = [plan for plan in plans if plan.setup.provider != "local" and not plan.rehearsal]
    if not (billed and ask):
        return
    for basis in dict.fromkeys(filter(None, map(price_basis, billed))):
        click.echo(basis, err=True)
    costs_usd = [limit_cost(plan)[0] for plan in billed]
    total_usd = sum(cost_usd for cost_usd in costs_usd if cost_usd is not None)
    more = ", and more for the sizes without a known price" if None in costs_usd else ""
    ask_before_spending(f"This can cost up to {total_usd:.2f} USD{more}. Go on?")


def ask_before_spending(question: str) -> None:
    """Go on only where somebody says yes.

    Raises:
        UsageError: there is nobody to ask.
        click.Abort: the answer is no, or an interrupt.
    """
    nobody = UsageError("nobody is there to say whether money may be spent", why=question, todo="add --yes")
    if sys.stdin is None:
        raise nobody
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):  # click ends both in the same way: no input, and an interrupt
            click.echo(err=True)
            raise nobody from None
        raise


def _print_requests(session: Session, plans: Sequence[RunPlan], output_format: str) -> None:
    for plan in plans:
        request = session.provider_for(plan).render(plan, 1)
        if output_format == "json":
            click.echo(msgspec.json.encode(request).decode())
            continue
        cost_usd, reason = limit_cost(plan)
        basis = price_basis(plan)
        most = f"{cost_usd:.2f} USD" if cost_usd is not None else f"not known: {reason}"
        most += f" ({basis})" if basis else ""
        click.echo(f"# {plan.id}: at most {plan.machines_limit_s:.0f} s; at most {most}")
        for step in request.steps:
            body = msgspec.json.format(msgspec.json.encode(step.body)).decode()
            click.echo(f"{step.action}  {step.handle.kind} {step.handle.id}\n{body}")


def _print_detached(run_ids: Sequence[str], output_format: str) -> None:
    if output_format == "json":
        click.echo(msgspec.json.encode({"runs": run_ids}).decode())
        return
    for run_id in run_ids:
        click.echo(run_id)
        click.echo(f"  cloudbench logs {run_id} --follow\n  cloudbench collect {run_id}", err=True)
