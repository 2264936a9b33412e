"""The table of kinds against a real API server."""

from __future__ import annotations

from reasoningpool.adapters.paths import group_path
from reasoningpool.objects import KINDS


def test_every_kind_is_declared_as_the_api_server_serves_it(apiserver):
    for kind in KINDS:
        answer = apiserver.request("GET", group_path(kind.api_version))
        served = {resource["name"]: resource for resource in answer.body["resources"]}
        assert kind.plural in served, kind
        assert served[kind.plural]["kind"] == kind.kind
        assert served[kind.plural]["namespaced"]
        for grant in kind.grants:
            resource = f"{kind.plural}/{grant.subresource}" if grant.subresource else kind.plural
            if grant.subresource != "finalizers":  # an admission check, not a resource
                assert set(grant.verbs) <= set(served[resource]["verbs"]), resource
