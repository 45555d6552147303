"""The types of the TypeScript client, from the OpenAPI document: `python tests/typescript.py`
writes them to clients/typescript/types.ts."""

import json
from pathlib import Path
from typing import Any

from ensemble_sampling.serve.http import api, openapi

FILE = Path(__file__).parents[1] / "clients" / "typescript" / "types.ts"
PLAIN = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}
HEAD = "// Written by `python tests/typescript.py` from the service's OpenAPI document.\n"


def types() -> str:
    """All of them, as the file has them."""
    schemas = openapi.document(api.OPERATIONS)["components"]["schemas"]
    return "\n".join([HEAD, *(declared(name, schemas[name]) for name in sorted(schemas))])


def declared(name: str, schema: dict[str, Any]) -> str:
    """One schema as an interface; a field with a default need not be given."""
    lines = [f"  {line}" for line in fields(schema)]
    said = schema["description"].replace("\n", "\n * ").replace(" * \n", " *\n")
    return "\n".join(
        [f"/** {said} */"] * bool(said) + [f"export interface {name} {{", *lines, "}\n"]
    )


def fields(schema: dict[str, Any]) -> list[str]:
    needed = schema.get("required", [])
    properties = schema.get("properties", {}).items()
    return [f"{name}{'' if name in needed else '?'}: {written(of)};" for name, of in properties]


def written(schema: dict[str, Any]) -> str:
    """A schema as a type."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(written, schema["anyOf"])))
    if "prefixItems" in schema:
        return f"[{', '.join(map(written, schema['prefixItems']))}]"
    kind = schema.get("type")
    if kind == "array":
        inside = written(schema.get("items") or {})
        return f"({inside})[]" if " | " in inside else f"{inside}[]"
    if kind == "object":
        inside = schema.get("additionalProperties")
        return f"Record<string, {written(inside) if isinstance(inside, dict) else 'unknown'}>"
    return PLAIN.get(kind or "", "unknown")


if __name__ == "__main__":
    FILE.write_text(types())
