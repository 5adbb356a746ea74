"""What is generated from proto/ is current; the protos are in order."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from octavo.v1 import control_pb2, inference_pb2
from tests.tools import make_proto
from tests.tools.proto_docs import reference

STALE = "run make proto"


@pytest.fixture(scope="module")
def descriptors() -> bytes:
    """The encoded descriptors of proto/, as they are now."""
    return make_proto.described(comments=False)


def buf(*words: str) -> None:
    """Run buf, which must find nothing."""
    program = shutil.which("buf", path=sysconfig.get_path("scripts")) or shutil.which("buf")
    if program is None:
        pytest.skip("buf is not installed: pip install buf-bin")
    done = subprocess.run([program, *words], cwd=make_proto.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_protos_pass_the_linter_and_its_formatter() -> None:
    buf("lint")
    buf("format", "--diff", "--exit-code")


def test_protos_break_nobody_who_uses_those_of_the_main_branch() -> None:
    """Against the last commit where there is no main branch of another place."""
    refs = [ref for ref in ("origin/main", "HEAD") if _has_protos(ref)]
    if not refs:
        pytest.skip("there are no earlier protos to compare with")
    buf("breaking", "--against", f".git#ref={refs[0]}")


def test_protos_build_into_what_would_be_published(tmp_path: Path) -> None:
    built = tmp_path / "octavo.binpb"
    buf("build", "-o", str(built))
    files = {file.name for file in FileDescriptorSet.FromString(built.read_bytes()).file}
    assert {"octavo/v1/control.proto", "octavo/v1/inference.proto"} <= files


def _has_protos(ref: str) -> bool:
    command = ["git", "rev-parse", "--verify", "-q", f"{ref}:proto/octavo"]
    return subprocess.run(command, cwd=make_proto.ROOT, capture_output=True, check=False).returncode == 0


def test_descriptors_and_python_code_are_current(descriptors: bytes) -> None:
    assert descriptors == make_proto.DESCRIPTORS.read_bytes(), STALE
    files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}
    for module in (inference_pb2, control_pb2):
        now = files[module.DESCRIPTOR.name]
        _forget_json_names(now.message_type)
        assert FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) == now, STALE


def _forget_json_names(messages: Iterable[DescriptorProto]) -> None:
    """Python code has none, because they follow from the names."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        _forget_json_names(message.nested_type)


def test_python_files_are_those_of_the_compiler(tmp_path: Path) -> None:
    version = importlib.metadata.version("grpcio-tools")
    stub = (make_proto.PYTHON / "control_pb2_grpc.py").read_text()
    if f"GRPC_GENERATED_VERSION = '{version}'" not in stub:
        pytest.skip(f"grpcio-tools {version} is not the version that wrote the committed files")
    make_proto.python_code(tmp_path)
    made = sorted((tmp_path / "octavo" / "v1").iterdir())
    assert len(made) == 6
    for path in made:
        assert path.read_text() == (make_proto.PYTHON / path.name).read_text(), f"{path.name}: {STALE}"


def test_rust_code_is_current(descriptors: bytes) -> None:
    """By the digest in its first line; from scratch where OCTAVO_PROTO_RUST is set, which builds the generator."""
    code = make_proto.RUST.read_text(encoding="utf-8")
    assert code.startswith(make_proto.head(descriptors)), STALE
    if os.environ.get("OCTAVO_PROTO_RUST"):
        made = make_proto.rust_code(make_proto.described(comments=True))
        assert make_proto.head(descriptors) + made == code, STALE


def test_the_reference_is_current_and_everything_is_explained() -> None:
    page = reference(FileDescriptorSet.FromString(make_proto.described(comments=True)))
    assert page == make_proto.DOCS.read_text(encoding="utf-8"), STALE
    unexplained = [line for line in page.splitlines() if line.endswith("|  |") and "---" not in line]
    assert [line for line in unexplained if not line.startswith(("| field", "| call", "| value"))] == []
