"""The reference of the gRPC API in Markdown, made of the comments in proto/."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

__all__ = ["reference"]

_HEAD = """# gRPC reference

Made of the comments in `proto/octavo/v1` by `make proto`. How to call it: [grpc.md](grpc.md).
"""

# Numbers of the fields of FileDescriptorProto, DescriptorProto and so on, of which paths of comments are made.
_MESSAGE, _ENUM, _SERVICE, _FIELD, _VALUE, _METHOD = 4, 5, 6, 2, 2, 2
_KIND = FieldDescriptorProto.Type


class _Comments:
    """Comments of one file, by path."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._by_path = {tuple(place.path): place for place in file.source_code_info.location}

    def of(self, *path: int) -> str:
        """Return the comment before an element, as one paragraph a blank line."""
        place = self._by_path.get(path)
        return "" if place is None else _joined(place.leading_comments)

    def of_file(self) -> str:
        """Return the comment at the top of the file, which stands before its syntax."""
        place = self._by_path.get((12,))
        return "" if place is None else _joined(place.leading_comments)


def _joined(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(" ".join(line.strip() for line in part.splitlines()) for part in paragraphs)


def reference(descriptors: FileDescriptorSet) -> str:
    """Return the page for a descriptor set with source info."""
    parts = [_HEAD]
    for file in sorted(descriptors.file, key=lambda file: "inference" not in file.name):
        if file.package.startswith("octavo."):
            parts += _file(file, _Comments(file))
    return "\n".join(parts).rstrip() + "\n"


def _file(file: FileDescriptorProto, comments: _Comments) -> list[str]:
    parts = [f"## {file.name}\n", comments.of_file() + "\n"]
    for place, service in enumerate(file.service):
        parts.append(f"### {file.package}.{service.name}\n\n{comments.of(_SERVICE, place)}\n")
        rows = []
        for number, method in enumerate(service.method):
            answer = f"stream {_short(method.output_type)}" if method.server_streaming else _short(method.output_type)
            text = comments.of(_SERVICE, place, _METHOD, number)
            rows.append((f"`{method.name}`", f"`{_short(method.input_type)}`", f"`{answer}`", text))
        parts.append(_table(("call", "takes", "returns", ""), rows))
    for place, message in enumerate(file.message_type):
        parts += _message(message, comments, place)
    for place, enum in enumerate(file.enum_type):
        parts += _enum(enum, comments, place)
    return parts


def _message(message: DescriptorProto, comments: _Comments, place: int) -> list[str]:
    parts = [f"### {message.name}\n\n{comments.of(_MESSAGE, place)}\n"]
    entries = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    rows = []
    for number, field in enumerate(message.field):
        text = comments.of(_MESSAGE, place, _FIELD, number)
        if field.HasField("oneof_index") and not field.proto3_optional:
            text = f"One of `{message.oneof_decl[field.oneof_index].name}`. {text}"
        rows.append((f"`{field.name}`", f"`{_type(field, entries)}`", text))
    if rows:
        parts.append(_table(("field", "type", ""), rows))
    return parts


def _enum(enum: EnumDescriptorProto, comments: _Comments, place: int) -> list[str]:
    rows = [
        (f"`{value.name}`", str(value.number), comments.of(_ENUM, place, _VALUE, number))
        for number, value in enumerate(enum.value)
    ]
    return [f"### {enum.name}\n\n{comments.of(_ENUM, place)}\n", _table(("value", "number", ""), rows)]


def _type(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    named = field.type in (_KIND.TYPE_MESSAGE, _KIND.TYPE_ENUM)
    name = _short(field.type_name) if named else _KIND.Name(field.type).removeprefix("TYPE_").lower()
    if name in entries:
        key, value = entries[name].field
        return f"map<{_type(key, {})}, {_type(value, {})}>"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
