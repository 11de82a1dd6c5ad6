"""The embedded Triton: right answers under every numpy, and nothing left behind.

The tests of answers run on every environment found: `.triton`, and those that
TRITONWATCH_TEST_ENVIRONMENTS names, separated by colons (make one with
`.ci/venv PYTHON FOLDER requirements-triton.lock`).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from exporter.errors import EmbeddedTritonError
from exporter.triton import backend, keeper
from exporter.triton.embedded import EmbeddedTriton, Ports

pytestmark = pytest.mark.triton

DTYPES = {
    "BOOL": bool,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "STRING": object,
}

TRANSPOSE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([transposed(t) for t in r.inputs()]) for r in requests]

def transposed(tensor):
    assert isinstance(tensor, pb.Tensor)
    array = tensor.as_numpy()
    output = pb.Tensor("T_" + tensor.name(), array.T)
    again = output.as_numpy()
    assert again.dtype == array.dtype and (again == array.T).all(), tensor.name()
    return output
"""

SCALE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        values = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", v * {factor})]) for v in values]
"""

SCALE_CONFIG = """
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def environments():
    named = os.environ.get("TRITONWATCH_TEST_ENVIRONMENTS", "").split(":")
    return ["nearest", *filter(None, named)]


@pytest.fixture(params=environments())
def environment(request, triton_environment):
    if request.param == "nearest":
        return triton_environment
    return Path(request.param)


def write_model(repository, name, config, source):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    (repository / name / "1" / "model.py").write_text(source)
    return repository


def scaling(repository, factor=2, name="scale"):
    """A repository whose one model multiplies by the factor."""
    return write_model(repository, name, SCALE_CONFIG, SCALE.format(factor=factor))


def ask(server, values=(1.0, 2.0, 4.0), *, timeout=10.0):
    """What `scale` answers, through HTTP and JSON."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    connection = http.client.HTTPConnection(server.http, timeout=timeout)
    with contextlib.closing(connection):
        body = json.dumps({"inputs": [tensor]})
        connection.request("POST", "/v2/models/scale/infer", body)
        return json.loads(connection.getresponse().read())["outputs"][0]["data"]


def eventually(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid):
    """Whether the process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def shared_memory(token):
    return [path.name for path in Path("/dev/shm").iterdir() if token in path.name]


def left(folder):
    """What remains of the server that ran from the folder."""
    processes = keeper.members(folder.name)
    return processes + shared_memory(folder.name) + [folder] * folder.exists()


# Answers


def array_of(name, shape, rng):
    values = rng.integers(0, 100, shape)
    if name == "STRING":
        text = [f"é{value}".encode() * (value % 4) for value in values.ravel()]
        return np.array(text, object).reshape(shape)
    if name == "BOOL":
        return values % 2 == 0
    return values.astype(DTYPES[name])


@pytest.fixture
def transposing(environment, start_triton, tmp_path):
    """A client of a server whose one model transposes a matrix of every type."""
    lines = ['backend: "python"']
    for name in DTYPES:
        tensor = f"data_type: TYPE_{name} dims: [ -1, -1 ]"
        lines.append(f'input [ {{ name: "{name}" optional: true {tensor} }} ]')
        lines.append(f'output [ {{ name: "T_{name}" {tensor} }} ]')
    repository = write_model(tmp_path / "m", "transpose", "\n".join(lines), TRANSPOSE)
    server = start_triton(repository, environment=environment)
    with contextlib.closing(triton_grpc.InferenceServerClient(server.grpc)) as client:
        yield client


def test_tensors_of_every_type_and_layout_pass_unharmed(transposing) -> None:
    rng = np.random.default_rng(0)
    for shape in [(2, 3), (1, 1), (1, 7), (200, 40), (0, 3)]:
        arrays = {name: array_of(name, shape, rng) for name in DTYPES}
        inputs = []
        for name, array in arrays.items():
            datatype = "BYTES" if name == "STRING" else name
            inputs.append(triton_grpc.InferInput(name, list(shape), datatype))
            inputs[-1].set_data_from_numpy(array)
        result = transposing.infer("transpose", inputs)
        for name, array in arrays.items():
            output = result.as_numpy(f"T_{name}")
            assert output.shape == array.T.shape, (name, shape)
            assert output.dtype == array.dtype, (name, shape)
            assert np.array_equal(output, array.T), (name, shape)


def test_the_demo_models_answer_under_every_environment(
    environment, start_triton
) -> None:
    server = start_triton(environment=environment)
    folder = server.repository / "digits_fp32/data/held_out.npz"
    with np.load(folder) as data:
        pixels, labels = data["pixels"][:64], data["label"][:64]
    tensor = triton_grpc.InferInput("pixels", list(pixels.shape), "FP32")
    tensor.set_data_from_numpy(pixels.astype(np.float32))
    with contextlib.closing(triton_grpc.InferenceServerClient(server.grpc)) as client:
        for model in ("digits_fp32", "digits_int8"):
            probabilities = client.infer(model, [tensor]).as_numpy("probabilities")
            right = (probabilities.argmax(axis=1) == labels).mean()
            assert probabilities.dtype == np.float32
            assert right > 0.9, model


def test_no_environment_is_written_to_and_no_repository(
    environment, start_triton, tmp_path
) -> None:
    site = backend.inspect(environment).site / "pytriton"
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    repository = scaling(tmp_path / "models")
    server = start_triton(repository, environment=environment)
    assert ask(server) == [2.0, 4.0, 8.0]
    server.kill()
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
    assert not list(repository.rglob("__pycache__"))


# Living


def test_several_servers_run_side_by_side(start_triton, tmp_path) -> None:
    servers = [
        start_triton(scaling(tmp_path / f"models{factor}", factor))
        for factor in (3, 5, 7)
    ]
    assert [ask(server) for server in servers] == [
        [3.0, 6.0, 12.0],
        [5.0, 10.0, 20.0],
        [7.0, 14.0, 28.0],
    ]
    addresses = {a for s in servers for a in (s.grpc, s.http, s.metrics)}
    assert len(addresses) == 9


def test_only_loopback_is_listened_on(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    listening = {}
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/{server.pid}/net/{table}").read_text().splitlines()[1:]
        for address, _, state in (line.split()[1:4] for line in lines):
            if state == "0A":
                host, port = address.split(":")
                listening.setdefault(int(port, 16), set()).add(host)
    for port in (server.ports.grpc, server.ports.http, server.ports.metrics):
        # 127.0.0.1, or the same as an IPv6 address.
        assert listening[port] <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_a_restart_keeps_the_ports_and_the_log(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    pid, ports = server.pid, server.ports
    server.restart()
    assert server.ports == ports
    assert server.pid != pid
    assert not alive(pid)
    assert ask(server) == [2.0, 4.0, 8.0]
    server.kill()
    server.start()
    assert server.ports == ports
    assert ask(server) == [2.0, 4.0, 8.0]
    assert server.log.read_text().count("Started HTTPService") == 3


def test_a_server_of_ours_tells_its_version_and_its_stubs(
    start_triton, tmp_path
) -> None:
    repository = scaling(tmp_path / "models")
    scaling(tmp_path / "models", name="scale_too")
    server = start_triton(repository)
    assert server.version == "2.51.0"
    assert len(server.stub_pids()) == 2
    assert all(os.getpgid(pid) == server.pid for pid in server.stub_pids())


def test_models_load_on_demand_under_explicit_control(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"), model_control="explicit")
    assert server.stub_pids() == []
    with contextlib.closing(triton_grpc.InferenceServerClient(server.grpc)) as client:
        client.load_model("scale")
    assert ask(server) == [2.0, 4.0, 8.0]
    assert len(server.stub_pids()) == 1


def test_a_frozen_server_answers_again_after_the_thaw(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    ask(server)
    server.freeze()
    with pytest.raises(TimeoutError):
        ask(server, timeout=0.3)
    assert server.running
    server.thaw()
    assert ask(server) == [2.0, 4.0, 8.0]


def test_a_server_outlives_the_thread_that_started_it(start_triton, tmp_path) -> None:
    started = []
    thread = threading.Thread(
        target=lambda: started.append(start_triton(scaling(tmp_path / "models")))
    )
    thread.start()
    thread.join()
    assert ask(started[0]) == [2.0, 4.0, 8.0]
    assert not eventually(lambda: not started[0].running, seconds=0.5)


# Ending


def test_stop_leaves_nothing_and_says_how_it_ended(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    token, pids = server._folder.name, [server.pid, *server.stub_pids()]
    assert shared_memory(token)
    assert server.stop() == 0
    assert not any(map(alive, pids))
    assert not shared_memory(token)
    assert not server.running
    assert server.stop() == 0


def test_kill_leaves_nothing(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    token, pids = server._folder.name, [server.pid, *server.stub_pids()]
    server.freeze()
    assert server.kill() == 128 + signal.SIGKILL
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not shared_memory(token)


def test_a_server_that_dies_by_itself_takes_its_stubs_along(
    start_triton, tmp_path
) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    token, pids = server._folder.name, [server.pid, *server.stub_pids()]
    os.kill(server.pid, signal.SIGSEGV)
    assert eventually(lambda: not server.running)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not shared_memory(token)
    assert server.stop() == 128 + signal.SIGSEGV


def test_an_exception_in_the_block_ends_the_server(
    triton_environment, tmp_path
) -> None:
    server = EmbeddedTriton(
        scaling(tmp_path / "models"), environment=triton_environment
    )

    def divide_by_zero():
        with server:
            assert left(server._folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        divide_by_zero()
    assert not left(server._folder)
    # Something went wrong: the log stays for whoever looks into it.
    assert "Started HTTPService" in server.log.read_text()
    server.log.unlink()


def test_a_log_nobody_asked_for_goes_after_a_good_end(
    triton_environment, tmp_path
) -> None:
    repository = scaling(tmp_path / "models")
    with EmbeddedTriton(repository, environment=triton_environment) as server:
        assert server.log.stat().st_size > 0
        server.kill()
    assert not server.log.exists()


def test_the_log_of_a_server_that_died_stays(triton_environment, tmp_path) -> None:
    repository = scaling(tmp_path / "models")
    with EmbeddedTriton(repository, environment=triton_environment) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(lambda: not server.running)
    assert "Started HTTPService" in server.log.read_text()
    server.log.unlink()


class Owner:
    """A Python process that holds a server, to be ended from outside."""

    def __init__(self, environment, folder, body):
        self.log = folder / "triton.log"
        repository = scaling(folder / "models")
        source = textwrap.dedent(body).format(
            environment=environment, repository=repository, log=self.log
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline().split()
        self.folder = Path(line[0])
        self.pids = [int(pid) for pid in line[1:]]

    def end(self, number):
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process.stdout.close()
        return code

    def left(self):
        return left(self.folder) + [pid for pid in self.pids if alive(pid)]


HOLDING = """
    import contextlib, signal, time
    from pathlib import Path
    from exporter.triton.embedded import EmbeddedTriton, exit_on_sigterm

    # What runs the tests in the background may have them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    with {handler}, EmbeddedTriton(
        Path("{{repository}}"), environment=Path("{{environment}}"), log=Path("{{log}}")
    ) as server:
        print(server._folder, server.pid, *server.stub_pids(), flush=True)
        {freeze}
        time.sleep(60)
    """
PLAIN, HANDLED = "contextlib.nullcontext()", "exit_on_sigterm()"


@pytest.mark.parametrize(
    ("number", "handler", "freeze", "code", "gentle"),
    [
        pytest.param(signal.SIGTERM, HANDLED, "", 143, True, id="SIGTERM-handled"),
        pytest.param(signal.SIGTERM, PLAIN, "", -15, False, id="SIGTERM"),
        pytest.param(signal.SIGINT, PLAIN, "", -2, True, id="SIGINT"),
        pytest.param(signal.SIGKILL, PLAIN, "", -9, False, id="SIGKILL"),
        pytest.param(
            signal.SIGKILL, PLAIN, "server.freeze()", -9, False, id="SIGKILL-frozen"
        ),
    ],
)
def test_a_signal_to_the_owner_leaves_nothing(
    triton_environment, tmp_path, number, handler, freeze, code, gentle
) -> None:
    body = HOLDING.format(handler=handler, freeze=freeze)
    owner = Owner(triton_environment, tmp_path, body)
    assert len(owner.pids) == 2
    assert owner.left()
    assert owner.end(number) == code
    assert eventually(lambda: not owner.left()), owner.left()
    # Gentle: the server was asked, and unloaded its models.
    assert ("successfully unloaded" in owner.log.read_text()) == gentle


def test_an_owner_killed_during_the_start_leaves_nothing(
    triton_environment, tmp_path
) -> None:
    body = """
        import threading, time
        from pathlib import Path
        from exporter.triton.embedded import EmbeddedTriton

        server = EmbeddedTriton(
            Path("{repository}"), environment=Path("{environment}"), log=Path("{log}")
        )
        threading.Thread(target=server.__enter__, daemon=True).start()
        while not server.pid:
            time.sleep(0.0001)
        print(server._folder, server.pid, flush=True)
        time.sleep(60)
        """
    owner = Owner(triton_environment, tmp_path, body)
    assert owner.end(signal.SIGKILL) == -signal.SIGKILL
    assert eventually(lambda: not owner.left()), owner.left()
    assert "Started HTTPService" not in owner.log.read_text()


# Not starting


def test_a_missing_environment_says_what_makes_it(tmp_path) -> None:
    with pytest.raises(EmbeddedTritonError, match=r"no \.triton in .*make demo"):
        backend.find(tmp_path)
    with pytest.raises(EmbeddedTritonError, match=r"no usable Python .*make demo"):
        EmbeddedTriton(tmp_path, environment=tmp_path / "missing")


def test_an_environment_without_the_wheel_says_so(tmp_path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True
    )
    with pytest.raises(EmbeddedTritonError, match="make demo"):
        EmbeddedTriton(tmp_path, environment=tmp_path / "bare")


def test_a_missing_libpython_names_the_package(triton_environment, tmp_path) -> None:
    # Debian's python3 comes without the shared library that the stub is linked to.
    known = backend.inspect(triton_environment)
    facts = {
        "version": "3.11",
        "numpy": known.numpy,
        "site": str(known.site),
        "folders": [str(tmp_path)],
    }
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    python.chmod(0o755)
    with pytest.raises(EmbeddedTritonError, match=r"apt-get install libpython3\.11$"):
        backend.inspect(tmp_path)


@pytest.mark.parametrize(
    ("config", "source", "reason"),
    [
        (SCALE_CONFIG, "import absent_module", "No module named 'absent_module'"),
        (SCALE_CONFIG + "colour: 3", SCALE, 'no field named "colour"'),
        (SCALE_CONFIG.replace("python", "onnxruntime"), SCALE, "onnxruntime"),
    ],
)
def test_a_broken_repository_is_reported_at_once_with_the_reason(
    start_triton, tmp_path, config, source, reason
) -> None:
    repository = write_model(tmp_path / "models", "scale", config, source)
    with pytest.raises(EmbeddedTritonError) as caught:
        # Longer than the test may take: it cannot have waited for this.
        start_triton(repository, ready_timeout_seconds=600)
    assert "ended with 1 while starting" in str(caught.value)
    assert reason in str(caught.value)
    assert str(tmp_path / "triton.log") in str(caught.value)
    assert "NVML" not in str(caught.value)


def test_a_server_that_is_not_ready_in_time_is_ended(
    triton_environment, tmp_path
) -> None:
    source = "import time\nprint('reading weights', flush=True)\ntime.sleep(60)\n"
    server = EmbeddedTriton(
        write_model(tmp_path / "models", "scale", SCALE_CONFIG, source),
        environment=triton_environment,
        log=tmp_path / "triton.log",
        ready_timeout_seconds=1.5,
    )
    with pytest.raises(EmbeddedTritonError, match=r"not ready after 1\.5 s") as error:
        server.__enter__()
    assert "reading weights" in str(error.value)
    assert not left(server._folder)


def test_a_fixed_port_that_is_taken_is_named(start_triton, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedTritonError, match=f"127.0.0.1:{port} is in use"):
            start_triton(tmp_path, ports=Ports(grpc=port, http=0, metrics=0))


@pytest.mark.parametrize("kind", ["grpc", "http", "metrics"])
def test_another_port_is_taken_when_one_is_lost_on_the_way(
    triton_environment, tmp_path, kind
) -> None:
    lost = []

    class Unlucky(EmbeddedTriton):
        def _launch(self):
            if not lost:
                port = getattr(self.ports, kind)
                lost.append(socket.create_server(("127.0.0.1", port)))
            super()._launch()

    repository = scaling(tmp_path / "models")
    with Unlucky(repository, environment=triton_environment) as server:
        assert ask(server) == [2.0, 4.0, 8.0]
        assert getattr(server.ports, kind) != lost[0].getsockname()[1]
        server.kill()
    lost[0].close()


def test_a_model_that_fails_at_run_time_says_so_and_lives(
    start_triton, tmp_path
) -> None:
    source = SCALE.format(factor="self.absent")
    server = start_triton(
        write_model(tmp_path / "models", "scale", SCALE_CONFIG, source)
    )
    tensor = triton_grpc.InferInput("x", [1], "FP32")
    tensor.set_data_from_numpy(np.ones(1, np.float32))
    with (
        contextlib.closing(triton_grpc.InferenceServerClient(server.grpc)) as client,
        pytest.raises(InferenceServerException, match="absent"),
    ):
        client.infer("scale", [tensor])
    assert server.running
