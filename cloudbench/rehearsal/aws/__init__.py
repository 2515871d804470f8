"""AWS on this machine: moto in this process, and what moto leaves out of AWS Batch and EC2.

Jobs and instances really run on the rehearsal's machines. Each module says what moto alone does instead. Accepted
without effect: launch templates of compute environments, network and placement settings, roles, secrets, user limits.
Refused: array jobs, EKS and Fargate jobs, and starting a stopped instance again.
"""

from cloudbench.rehearsal.aws.scenario import SCENARIOS, Scenario, load_scenario
from cloudbench.rehearsal.aws.stand_in import AwsStandIn

__all__ = ["SCENARIOS", "AwsStandIn", "Scenario", "load_scenario"]
