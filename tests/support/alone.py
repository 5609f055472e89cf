"""Tests that run alone, after all others: those that measure time (`@pytest.mark.alone`), and a second time those that failed beside
others. One that passes then is flaky: the run passes, and the list at its end names it for repair.

Each runs in a pytest of its own, which hands its reports over in a file.
"""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

REPORTS = "TIDECAST_TEST_REPORTS"  # the file in which such a pytest leaves its reports
MANY = 20  # This many failures are not accidental, and are not run again.
TIMEOUT = 900.0  # seconds for the tests of one such pytest


def register(config) -> None:
    config.addinivalue_line("markers", "alone: measures time, so it runs when no other test does")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(config), "alone")
    elif REPORTS in os.environ:
        config.pluginmanager.register(Reporter(config, pathlib.Path(os.environ.pop(REPORTS))), "alone")
    else:
        config.pluginmanager.register(Controller(config), "alone")


class Worker:
    """A worker of a parallel run: it leaves out the tests that must be alone, and reports them."""

    def __init__(self, config):
        self.config, self.left = config, []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.left = [item.nodeid for item in items if item.get_closest_marker("alone")]
        items[:] = [item for item in items if not item.get_closest_marker("alone")]

    def pytest_sessionfinish(self):
        self.config.workeroutput["alone"] = self.left


class Reporter:
    """A pytest of single tests: it saves its reports."""

    def __init__(self, config, path: pathlib.Path):
        self.config, self.path = config, path

    def pytest_runtest_logreport(self, report):
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        with self.path.open("a") as out:
            print(json.dumps(data), file=out)


class Controller:
    """Runs the tests that must be alone when all others have ended, and runs failed ones a second time."""

    def __init__(self, config):
        self.config = config
        self.alone: list[str] = []
        self.failed: dict[str, list] = {}
        self.flaky: dict[str, list] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.alone = getattr(node, "workeroutput", None) and node.workeroutput.get("alone") or self.alone

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.setdefault(report.nodeid, []).append(report)

    def pytest_report_teststatus(self, report):
        if report.nodeid in self.flaky:
            return ("flaky", "y", "FLAKY") if report.when == "call" else ("", "", "")
        return None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session):
        result = yield
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            return result
        if session.shouldfail or session.shouldstop:
            return result
        if self.alone:
            for report in self.run(self.alone):
                self.config.hook.pytest_runtest_logreport(report=report)
        if len(self.failed) <= MANY:
            for nodeid in list(self.failed):
                again = self.run([nodeid])
                if not any(report.failed for report in again):
                    self.pardon(session, nodeid, again)
        if self.alone or self.flaky:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if self.failed else pytest.ExitCode.OK
        return result

    def run(self, nodeids: list[str]) -> list:
        """The reports of a pytest that runs these. A test without a report has failed."""
        with tempfile.TemporaryDirectory() as place:
            path = pathlib.Path(place) / "reports"
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(self.config.rootpath)]
            if self.config.pluginmanager.hasplugin("xdist"):
                command += ["-n", "0"]
            if self.config.inipath:
                command += ["-c", str(self.config.inipath)]
            try:
                done = subprocess.run([*command, *nodeids], cwd=self.config.rootpath, env={**os.environ, REPORTS: str(path)}, timeout=TIMEOUT,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                said = done.stdout
            except subprocess.TimeoutExpired:
                said = f"did not end within {TIMEOUT} s"
            lines = path.read_text().splitlines() if path.exists() else []
        hook = self.config.hook
        reports = [hook.pytest_report_from_serializable(config=self.config, data=json.loads(line)) for line in lines]
        ended = {report.nodeid for report in reports if report.when == "teardown"}
        return reports + [pytest.TestReport(nodeid, (nodeid.split("::")[0], None, nodeid), {}, "failed", said[-5000:], "call")
                          for nodeid in nodeids if nodeid not in ended]

    def pardon(self, session, nodeid: str, again: list) -> None:
        """It failed, and passed alone: neither failed nor passed, but flaky."""
        self.flaky[nodeid] = self.failed.pop(nodeid)
        session.testsfailed -= len(self.flaky[nodeid])
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        for category in ("failed", "error", "passed", "skipped"):
            left = [report for report in reporter.stats.pop(category, []) if report.nodeid != nodeid]
            if left:
                reporter.stats[category] = left
        for report in again:
            self.config.hook.pytest_runtest_logreport(report=report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter):
        for nodeid, reports in self.flaky.items():
            terminalreporter.section(f"FLAKY {nodeid}", "_")
            for report in reports:
                terminalreporter.write_line(report.longreprtext)
                # The output of its programs completes the traceback.
                for title, text in report.sections:
                    terminalreporter.section(title, "-")
                    terminalreporter.write_line(text.rstrip())
        result = yield
        if self.flaky:
            terminalreporter.section("flaky: failed, and passed by themselves", yellow=True)
            for nodeid in self.flaky:
                terminalreporter.write_line(f"FLAKY {nodeid}")
        return result
