"""The operator's rights as manifests, made from the table of kinds: what it uses, and nothing else."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

from reasoningpool.objects import KINDS, Kind, Kinds
from reasoningpool.objects.kinds import Grant

NAME: Final = "reasoningpool-operator"
NAMESPACE: Final = "reasoningpool-system"

_HEADER: Final = """\
# Generated from operator/src/reasoningpool/objects/kinds.py by `make generate`.
# Only what the operator uses: it never reads a Secret and never writes a ReasoningPool but its status.
# It also asks engines for their KV pool at the pods' addresses, port 8000, which takes no permission but a network
# that lets it (docs/verification.md has a NetworkPolicy). Which optional kinds a cluster serves it reads from the API's
# discovery, which Kubernetes allows every account.
"""
_COMMENT_WIDTH: Final = 118


def rbac_manifests(kinds: Kinds = KINDS) -> str:
    """ServiceAccount, ClusterRole, Role and their bindings, as the YAML of operator/deploy/rbac.yaml."""
    documents = (
        f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {NAME}\n",
        _role("ClusterRole", (kind for kind in kinds if not kind.home_only)),
        _binding("ClusterRole"),
        _role("Role", (kind for kind in kinds if kind.home_only)),
        _binding("Role"),
    )
    return _HEADER + "---\n".join(documents)


def _role(role: str, kinds: Iterable[Kind]) -> str:
    rules = "".join(_rule(kind, grant) for kind in kinds for grant in kind.grants)
    return f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {role}\nmetadata:\n  name: {NAME}\nrules:\n{rules}"


def _rule(kind: Kind, grant: Grant) -> str:
    why = [grant.why] if grant.why else []
    if kind.optional and not grant.subresource:
        why.append(f"Optional: used where the cluster has {kind.installed_with}.")
    comments = textwrap.wrap(" ".join(why), _COMMENT_WIDTH, initial_indent="  # ", subsequent_indent="  # ")
    resource = f"{kind.plural}/{grant.subresource}" if grant.subresource else kind.plural
    group = kind.group or '""'
    lines = (
        f"- apiGroups: [{group}]",
        *comments,
        f"  resources: [{resource}]",
        f"  verbs: [{', '.join(grant.verbs)}]",
    )
    return "".join(f"{line}\n" for line in lines)


def _binding(role: str) -> str:
    return (
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {role}Binding\nmetadata:\n  name: {NAME}\n"
        f"roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {role}\n  name: {NAME}\n"
        f"subjects:\n- kind: ServiceAccount\n  name: {NAME}\n  namespace: {NAMESPACE}\n"
    )
