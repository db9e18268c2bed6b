"""What this machine offers, and what each missing piece costs: the findings of `batchscope doctor`.

Importing this module is light. `examine` imports torch and starts one short child process that tries Qt.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

import resources
from app.cli.doctor.finding import Finding, Status
from app.cli.doctor.gpu import gpu_findings, torch_findings
from app.cli.doctor.libraries import library_findings
from app.cli.doctor.machine import hardware_findings, python_finding, system_finding
from app.cli.doctor.models import cached_models_finding, demo_model_finding
from app.cli.doctor.qt import display_finding, qt_finding


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser("doctor", help="what machine, GPU, libraries and models are here")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    doctor.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    findings = examine()
    print(json.dumps([asdict(f) for f in findings], indent=1) if options.json else render(findings))
    return 0


def examine() -> list[Finding]:
    """Looks at everything, and reaches no network. A few seconds: importing torch is most of it."""
    gpus = gpu_findings()
    return [
        system_finding(),
        *hardware_findings(),
        python_finding(sys.version_info[:3]),
        *library_findings(),
        *gpus,
        *torch_findings(has_gpu=any(finding.status is Status.OK for finding in gpus)),
        qt_finding(),
        display_finding(dict(os.environ)),
        demo_model_finding(resources.path("models")),
        cached_models_finding(),
        Finding("network", Status.NOTE, "not tried: a model named by its hub id is fetched when it is loaded"),
    ]


def render(findings: Sequence[Finding]) -> str:
    """One line a finding, its cost and remedy below it where there are any, and the count of each status."""
    width = max((len(finding.topic) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.status:<8} {finding.topic:<{width}}  {finding.detail}")
        margin = " " * (width + 11)
        told = (("costs", finding.cost), ("to do", finding.remedy))
        lines += [f"{margin}{word}: {text}" for word, text in told if text]
    counts = (f"{sum(finding.status is status for finding in findings)} {status}" for status in Status)
    return "\n".join([*lines, "", " · ".join(counts)])
