import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool_runtime.contract import Tenants, TenantSource
from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.tenants import identify

BY_HEADER = Tenants(source=TenantSource.HEADER)
BY_KEY = Tenants(source=TenantSource.API_KEY)


def salt(tenants: Tenants, headers: dict[str, str], client: object = None, secret: bytes = b"s") -> str | None:
    return identify(tenants, headers, client, secret=secret).salt


def test_tenants_do_not_share_a_salt() -> None:
    one, other = salt(BY_HEADER, {"x-tenant-id": "a"}), salt(BY_HEADER, {"x-tenant-id": "b"})
    assert one != other
    assert one == salt(BY_HEADER, {"x-tenant-id": "a"})


def test_a_client_cannot_choose_its_salt() -> None:
    assert salt(BY_HEADER, {"x-tenant-id": "a"}, "other") == salt(BY_HEADER, {"x-tenant-id": "a"})


def test_an_allowed_salt_counts_within_its_tenant() -> None:
    tenants = Tenants(source=TenantSource.HEADER, allow_client_salt=True)
    assert len({salt(tenants, {"x-tenant-id": name}, mine) for name in "ab" for mine in (None, "x", "y")}) == 6


@given(pairs=st.lists(st.tuples(st.text(min_size=1).map(str.strip).filter(bool), st.text(min_size=1)), unique=True))
def test_no_two_tenants_and_salts_collide(pairs: list[tuple[str, str]]) -> None:
    tenants = Tenants(source=TenantSource.HEADER, allow_client_salt=True)
    assert len({salt(tenants, {"x-tenant-id": name}, mine) for name, mine in pairs}) == len(pairs)


def test_the_key_is_not_in_the_salt_or_the_name() -> None:
    tenant = identify(BY_KEY, {"authorization": "Bearer secret-key"}, None)
    assert tenant.name is not None
    assert "secret-key" not in tenant.name + str(tenant.salt)
    assert tenant.salt == salt(BY_KEY, {"x-api-key": "secret-key"}, secret=b"")


def test_a_missing_tenant_is_refused_where_it_is_required() -> None:
    with pytest.raises(RefusalError, match="'x-tenant-id' is required"):
        identify(Tenants(source=TenantSource.HEADER, required=True), {}, None)
    assert salt(BY_HEADER, {}) not in {None, salt(BY_HEADER, {"x-tenant-id": "None"})}
