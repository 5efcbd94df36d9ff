"""Keeps a Python agent's imports in memory and answers each attempt from a process of its own.

    python fulgurite_serve.py [--port 8300] [--instrument] agent.py [ARGUMENT...]

The agent is a program as agent.command would run it, unchanged: its task on standard
input, its model in the environment, its result the last line of standard output. In the
spec it is a service instead: agent.service.url: http://127.0.0.1:8300/run. Packages that
the program imports are imported once, here; each request forks, and the program begins in
a process that has them already. A framework that takes two seconds to import takes two
seconds once.

What differs from agent.command: the limits of memory and output, agent.environment and the
empty home of each rollout are the worker's, and a service has none of them. Programs start
in the directory of this process. --instrument does for each attempt what the command
opentelemetry-instrument does. It needs os.fork, so Linux or macOS, and nothing else.
"""

import argparse
import ast
import atexit
import gc
import importlib
import importlib.metadata
import json
import os
import runpy
import select
import signal
import socketserver
import sys
import tempfile
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

# What frameworks read while they are imported.
PRIVACY = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "TRACELOOP_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}

# The most characters of a variable; a longer task is on standard input alone.
LONGEST = 96 << 10


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def environment(task: dict[str, Any], address: str) -> dict[str, str]:
    """The variables by which clients, tracers and agents find what belongs to the attempt at address."""
    base, key, model, spans = task["base_url"], task["api_key"], task["model"], task["otlp_url"]
    root = base.removesuffix("/v1")
    return {
        "OPENAI_BASE_URL": base,
        "OPENAI_API_BASE": base,
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL_NAME": model,
        "OPENAI_DEFAULT_MODEL": model,
        "OPENAI_CHAT_MODEL_ID": model,
        "OPENAI_RESPONSES_MODEL_ID": model,
        "ANTHROPIC_BASE_URL": root,
        "ANTHROPIC_API_KEY": key,
        "OTEL_EXPORTER_OTLP_ENDPOINT": spans,
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": spans + "/v1/traces",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20" + key,
        "OTEL_RESOURCE_ATTRIBUTES": "fulgurite.rollout=" + address,
        "TRACELOOP_BASE_URL": spans,
        "TRACELOOP_API_KEY": key,
        "AGL_OPENAI_BASE_URL": base,
        "AGL_KEY": key,
        "AGL_EVENT_URL": task["event_url"],
        "AGL_ROLLOUT_ID": task["rollout"],
        "AGL_ATTEMPT_ID": address.rpartition("/")[2],
        "AGL_MODEL_NAME": model,
        "AGL_TASK_INPUT": compact({**task.get("metadata", {}), "id": task["id"], "input": task["input"]}),
        "FULGURITE_TASK": compact({name: task[name] for name in ("id", "input", "metadata") if name in task}),
        "FULGURITE_ROLLOUT": task["rollout"],
        "FULGURITE_REWARD_URL": task["reward_url"],
        "FULGURITE_EVENT_URL": task["event_url"],
    }


def imported(path: str, directory: str, seen: set[str]) -> list[str]:
    """The modules outside directory that the file at path imports, itself or by modules inside directory."""
    if path in seen:
        return []
    seen.add(path)
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    names = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
    found = []
    for name in names:
        # The program's own modules may look at the environment of an attempt when they are imported.
        own = os.path.join(directory, *name.split("."))
        inside = next((p for p in (own + ".py", os.path.join(own, "__init__.py")) if os.path.exists(p)), None)
        found += imported(inside, directory, seen) if inside else [name]
    return found


def preload(script: str, instrument: bool) -> None:
    names = imported(script, os.path.dirname(script), set())
    if instrument:
        names += ["opentelemetry.instrumentation.auto_instrumentation", "opentelemetry.exporter.otlp.proto.http.trace_exporter"]
        preload_instrumentations()
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SystemExit(f"fulgurite_serve.py: {script} imports {name}: {error}") from error
    gc.collect()
    gc.freeze()  # collections in attempts copy no page of what they share
    if threading.active_count() > 1:
        others = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        print(f"fulgurite_serve.py: imports started threads, which attempts will not have: {', '.join(others)}", file=sys.stderr)


def preload_instrumentations() -> None:
    for group in ("opentelemetry_distro", "opentelemetry_configurator", "opentelemetry_instrumentor"):
        for point in importlib.metadata.entry_points(group=group):
            try:
                point.load()
            except Exception as error:  # of a framework that is not installed: an attempt would say no more
                print(f"fulgurite_serve.py: {point.name} not loaded: {error}", file=sys.stderr)


def attempt(script: str, arguments: list[str], instrument: bool, variables: dict[str, str], result: Any, failure: Any) -> int:
    """Runs the program in this process, which was forked for it, and returns its exit code."""
    stdin = tempfile.TemporaryFile()
    stdin.write(variables["FULGURITE_TASK"].encode())
    stdin.seek(0)
    os.environ.update({name: value for name, value in variables.items() if len(value) <= LONGEST})
    os.dup2(stdin.fileno(), 0)
    os.dup2(result.fileno(), 1)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.argv = [script, *arguments]
    if "numpy" in sys.modules:  # the module random does it by itself
        sys.modules["numpy"].random.seed()
    code = 0
    try:
        if instrument:
            from opentelemetry.instrumentation import auto_instrumentation

            auto_instrumentation.initialize()
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            failure.write(end.code.encode())
    except BaseException as error:
        traceback.print_exc()
        failure.write("".join(traceback.format_exception_only(error)).encode())
        code = 1
    # The same order as at the end of an interpreter.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    failure.flush()
    return code


def last_line(file: Any) -> str:
    file.seek(0)
    lines = [line for line in file.read().decode("utf-8", "replace").split("\n") if line.strip()]
    return lines[-1].strip() if lines else ""


def server(script: str, arguments: list[str], instrument: bool, port: int) -> HTTPServer:
    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                variables = environment(task, self.headers["Idempotency-Key"] or task["rollout"])
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                return self.answer(400, f"no task of Fulgurite: {type(error).__name__}: {error}")
            with tempfile.TemporaryFile() as result, tempfile.TemporaryFile() as failure:
                code = self.run(variables, result, failure)
                if code is None:
                    return None
                if code == 0:
                    return self.answer(200, json.dumps({"result": last_line(result)}))
                if code == os.EX_TEMPFAIL:  # the program asks for another attempt
                    why = last_line(failure) or last_line(result) or f"exit code {code}, without a reason on standard output"
                    return self.answer(200, json.dumps({"retry": why}))
                how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
                self.answer(500, f"{how}: {last_line(failure)}".rstrip(": "))

        def run(self, variables: dict[str, str], result: Any, failure: Any) -> int | None:
            """The exit code of the program; none if whoever asked has gone, which ends the program."""
            ended, write = os.pipe()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    os.close(ended)
                    os.setpgid(0, 0)
                    self.connection.close()
                    code = attempt(script, arguments, instrument, variables, result, failure)
                finally:
                    os._exit(code)
            os.close(write)
            try:
                os.setpgid(child, child)
            except OSError:  # it did so itself, or has ended
                pass
            while True:
                # What the program leaves running may keep the pipe open.
                ready, _, _ = select.select([self.connection, ended], [], [], 1)
                gone, status = os.waitpid(child, 0 if ended in ready else os.WNOHANG)
                if not gone and self.connection in ready:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    return None
                if gone:
                    try:
                        os.killpg(child, signal.SIGKILL)  # what it leaves running
                    except ProcessLookupError:
                        pass
                    return os.waitstatus_to_exitcode(status)

        def answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(socketserver.ForkingMixIn, HTTPServer):
        request_queue_size = 1024  # a step's attempts come at once
        max_children = 4096

        def finish_request(self, request: Any, client_address: Any) -> None:
            # This is the process of one request. If it held the address, too, a service that was
            # killed could not be started again while its attempts still run.
            self.socket.close()
            super().finish_request(request, client_address)

    return Server(("127.0.0.1", port), Service)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps a Python agent's imports in memory and answers each attempt from a process of its own.")
    parser.add_argument("--port", type=int, default=8300, help="of the loopback interface; 0 for any")
    parser.add_argument("--instrument", action="store_true", help="as opentelemetry-instrument does")
    parser.add_argument("script", help="the agent's program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets in one order in each attempt; it counts from the start on
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    script = os.path.abspath(given.script)
    if not os.path.isfile(script):
        raise SystemExit(f"fulgurite_serve.py: no file {given.script}")
    sys.path[0] = os.path.dirname(script)
    os.environ.update(PRIVACY)
    began = time.monotonic()
    listening = server(script, given.arguments, given.instrument, given.port)
    preload(script, given.instrument)
    print(f"http://127.0.0.1:{listening.server_port}/run ({time.monotonic() - began:.1f} s of imports)", flush=True)
    try:
        listening.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
