"""Writes an OpenAPI document that has only what clients use: the operations of some tags, and the schemas that they need.

usage: prune.py DOCUMENT TAG... >PRUNED
"""

import json
import sys
from typing import Any

METHODS = {"delete", "get", "patch", "post", "put"}


def pruned(document: dict[str, Any], tags: set[str]) -> dict[str, Any]:
    """Return the document without the operations of other tags and without the components that only they use."""
    paths: dict[str, Any] = {}
    for path, item in document["paths"].items():
        kept = {
            name: value
            for name, value in item.items()
            if name not in METHODS or tags.intersection(value.get("tags", []))
        }
        if METHODS.intersection(kept):
            paths[path] = kept
    if not paths:
        raise SystemExit(f"no operation has one of the tags {sorted(tags)}")
    used = references(paths)
    queue = list(used)
    while queue:
        found = references(resolved(document, queue.pop())) - used
        used |= found
        queue += found
    components = {
        kind: {
            name: value
            for name, value in group.items()
            # Security schemes are referred to by name, not by reference.
            if kind == "securitySchemes" or f"#/components/{kind}/{name}" in used
        }
        for kind, group in document.get("components", {}).items()
    }
    listed = [tag for tag in document.get("tags", []) if tag["name"] in tags]
    result = {**document, "paths": paths, "components": {kind: group for kind, group in components.items() if group}}
    return {**result, "tags": listed} if listed else result


def references(node: object) -> set[str]:
    """Return all references within a node."""
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def resolved(document: dict[str, Any], reference: str) -> object:
    """Return what a reference within the document points to."""
    node: Any = document
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        json.dump(pruned(json.load(file), set(sys.argv[2:])), sys.stdout, indent=2)
