"""The JavaScript client of the page at ``/``, and its types, written from the OpenAPI document.

``python -m service.http.javascript`` writes both anew; ``./run schema`` does so, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from service.http.app import create_app

__all__ = ["client", "types", "write"]

_FOLDER: Final = Path(__file__).with_name("web") / "page"

_NOTE: Final = "Written by `./run schema` from the OpenAPI document of the service; changes belong there."

_SCALARS: Final = {
    "string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null",
}  # fmt: skip


def _operations() -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Name, method and path of each route that programs use, and what the document says of it."""
    for path, methods in _document()["paths"].items():
        if path.startswith("/v1/"):
            for method, operation in methods.items():
                yield _camel(operation["operationId"]), method.upper(), path, operation


def _document() -> dict[str, Any]:
    return create_app().openapi()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# ----------------------------------------------------------------------------------------------- client


def client() -> str:
    """The module: a class with one method for each route."""
    methods = "\n".join(_method(*operation) for operation in _operations())
    return (
        f"// {_NOTE}\n"
        'import { Service } from "./service.js";\n\n'
        "/** Every route as a method; types stand in client.d.ts. */\n"
        f"export class Client extends Service {{\n{methods}}}\n"
    )


def _method(name: str, method: str, path: str, operation: Mapping[str, Any]) -> str:
    inside = _inside(operation)
    takes_body = "requestBody" in operation
    arguments = [*inside, *(["body"] if takes_body else []), "options = {}"]
    address = re.sub(r"\{(\w+)\}", r"${encodeURIComponent(\1)}", path)
    body = "body" if takes_body else "undefined"
    kind = "stream" if _media(operation) == {"text/event-stream"} else "ask"
    return (
        f"  /** {operation['summary']}: {method} {path} */\n"
        f"  {name}({', '.join(arguments)}) {{\n"
        f'    return this.{kind}("{method}", `{address}`, {body}, options);\n'
        "  }\n"
    )


def _inside(operation: Mapping[str, Any]) -> list[str]:
    """Parameters in the path, each once."""
    found = (one["name"] for one in operation.get("parameters", ()) if one["in"] == "path")
    return list(dict.fromkeys(found))


def _media(operation: Mapping[str, Any]) -> set[str]:
    return {
        media
        for status, answer in operation["responses"].items()
        if str(status).startswith("2")
        for media in answer.get("content", {})
    }


# ------------------------------------------------------------------------------------------------ types


def types() -> str:
    """The declarations for TypeScript, of the client and of all documents that it sends and gets."""
    document = _document()
    schemas = document["components"]["schemas"]
    methods = "".join(_declaration(*operation) for operation in _operations())
    named = sorted(_reachable(schemas, [operation for *_, operation in _operations()]))
    documents = "\n".join(_named(name, schemas[name]) for name in named)
    return (
        f"// {_NOTE}\n"
        'import { Options, Service, ServerEvent } from "./service.js";\n\n'
        f"export class Client extends Service {{\n{methods}}}\n\n{documents}"
    )


def _declaration(name: str, _method: str, _path: str, operation: Mapping[str, Any]) -> str:
    inside = [f"{name}: string" for name in _inside(operation)]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]
        kinds = [_type(c["schema"]) for m, c in content.items() if m.endswith("json") and c.get("schema")]
        binary = ["Blob", "ArrayBuffer"] if any(not media.endswith("json") for media in content) else []
        inside.append(f"body: {' | '.join([*kinds, *binary])}")
    query = [
        f"{_key(p['name'])}?: {_type(p['schema'])}"
        for p in operation.get("parameters", ())
        if p["in"] == "query"
    ]
    options = f"Options<{{ {'; '.join(query)} }}>" if query else "Options"
    return f"  {name}({', '.join([*inside, f'options?: {options}'])}): {_answer(operation)};\n"


def _answer(operation: Mapping[str, Any]) -> str:
    if _media(operation) == {"text/event-stream"}:
        return "AsyncGenerator<ServerEvent>"
    schemas = [
        content["schema"]
        for status, answer in operation["responses"].items()
        if str(status).startswith("2")
        for media, content in answer.get("content", {}).items()
        if media.endswith("json") and content.get("schema")
    ]
    kinds = list(dict.fromkeys(map(_type, schemas)))
    whole = _media(operation) and all(media.endswith("json") for media in _media(operation))
    return f"Promise<{' | '.join(kinds)}>" if kinds and whole else "Promise<any>"


def _reachable(schemas: Mapping[str, Any], roots: Iterable[Any]) -> set[str]:
    """Names of the schemas that are referred to, and of those that these refer to."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(waiting.pop())):
            if name not in found:
                found.add(name)
                waiting.append(schemas[name])
    return found


def _named(name: str, schema: Mapping[str, Any]) -> str:
    about = str(schema.get("description", "")).partition("\n")[0].replace("*/", "")
    comment = f"/** {about} */\n" if about else ""
    if "properties" not in schema:
        return f"{comment}export type {name} = {_type(schema)};\n"
    required = set(schema.get("required", ()))
    fields = "".join(
        f"  {_key(key)}{'' if key in required else '?'}: {_type(rule)};\n"
        for key, rule in schema["properties"].items()
    )
    open_ended = "  [name: string]: unknown;\n" if schema.get("additionalProperties") is True else ""
    return f"{comment}export interface {name} {{\n{fields}{open_ended}}}\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_$][\w$]*", name) else json.dumps(name)


def _type(schema: Mapping[str, Any]) -> str:
    """The type of what a JSON Schema allows, as near as types can be."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(_type(one) for one in schema[several]))
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(map(_type, schema['prefixItems']))}]"
        case "array":
            return f"Array<{_type(schema.get('items', {}))}>"
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            fields = (
                f"{_key(key)}{'' if key in required else '?'}: {_type(rule)}"
                for key, rule in schema["properties"].items()
            )
            return f"{{ {'; '.join(fields)} }}"
        case "object":
            more = schema.get("additionalProperties")
            return f"Record<string, {_type(more) if isinstance(more, dict) else 'unknown'}>"
        case str(scalar):
            return _SCALARS[scalar]
    return "unknown"


def write(folder: Path = _FOLDER) -> None:
    """Write both files."""
    (folder / "client.js").write_text(client(), encoding="utf-8")
    (folder / "client.d.ts").write_text(types(), encoding="utf-8")


if __name__ == "__main__":
    write()
