"""The cache finds plans by digest and by request, and stays within its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.http.cache import MOST_KEYS, OVERHEAD_BYTES, PlanCache, PlanCaches

ONE = 100 + 2 * OVERHEAD_BYTES  # a body of 100 bytes under one key


def body(name: str) -> bytes:
    return name.encode().ljust(100)


def test_found_by_digest_and_key() -> None:
    cache = PlanCache(10 * ONE)
    cache.put("d", body("d"), "k1", "k2")
    found = cache.by_digest("d")
    assert found is not None
    assert found.body == body("d")
    assert cache.by_key("k1") is cache.by_key("k2") is found
    assert cache.by_key("k3") is None
    assert cache.by_digest("e") is None


def test_least_recently_used_leaves_first() -> None:
    cache = PlanCache(2 * ONE)
    cache.put("a", body("a"), "ka")
    cache.put("b", body("b"), "kb")
    assert cache.by_key("ka") is not None
    cache.put("c", body("c"), "kc")
    assert cache.by_digest("b") is None
    assert cache.by_key("kb") is None
    assert cache.by_key("ka") is not None
    assert cache.by_key("kc") is not None


def test_another_key_for_the_same_plan() -> None:
    cache = PlanCache(10 * ONE)
    cache.put("d", body("d"), "k1")
    cache.put("d", body("d"), "k2")
    assert len(cache) == 1
    assert cache.by_key("k1") is cache.by_key("k2") is not None
    assert cache.cost == 100 + 3 * OVERHEAD_BYTES


def test_keys_are_bounded() -> None:
    cache = PlanCache(1000 * ONE)
    for number in range(MOST_KEYS + 1):
        cache.put("d", body("d"), f"k{number}")
    assert cache.by_key("k0") is None
    assert cache.by_key(f"k{MOST_KEYS}") is not None


def test_too_large_for_the_cache() -> None:
    cache = PlanCache(ONE - 1)
    cache.put("d", body("d"), "k")
    assert len(cache) == 0
    assert cache.cost == 0
    assert cache.by_key("k") is None


def test_no_cache_at_all() -> None:
    cache = PlanCache(0)
    cache.put("d", b"")
    assert cache.by_digest("d") is None


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 19), st.integers(0, 2000)), max_size=60),
    st.integers(0, 8000),
)
def test_bookkeeping(puts: list[tuple[int, int, int]], limit: int) -> None:
    cache, sizes = PlanCache(limit), dict[int, int]()
    for digest, key, size in puts:
        sizes.setdefault(digest, size)
        kept = cache.by_digest(str(digest))
        cache.put(str(digest), kept.body if kept else bytes(sizes[digest]), f"{digest}:{key}")
        assert cache.cost <= limit
        alive = [p for d in range(10) if (p := cache.by_digest(str(d)))]
        assert cache.cost == sum(plan.cost for plan in alive)
        assert len(cache) == len(alive)
        assert all(cache.by_key(k) is plan for plan in alive for k in plan.keys)


def test_tenants_have_caches_of_their_own() -> None:
    caches = PlanCaches(10 * ONE)
    caches.of("a").put("d", body("a"), "k")
    assert caches.of("b").by_digest("d") is None
    assert caches.of("b").by_key("k") is None
    caches.of("b").put("d", body("b"), "k")
    found = caches.of("a").by_key("k")
    assert found is not None
    assert found.body == body("a")
    assert len(caches) == 2
    assert caches.cost == 2 * ONE


def test_no_tenant_pushes_out_what_others_have() -> None:
    caches = PlanCaches(4 * ONE)
    caches.of("b").put("kept", body("b"), "k")
    for number in range(20):
        caches.of("a").put(f"d{number}", body("a"), f"k{number}")
        assert caches.cost == caches.of("a").cost + caches.of("b").cost <= 4 * ONE
    assert caches.of("b").by_digest("kept") is not None
    assert len(caches.of("a")) == 3
    caches.of("a").put("too large for all", body("a") * 100, "k")
    assert caches.of("a").by_digest("too large for all") is None
    assert caches.cost == caches.of("a").cost + caches.of("b").cost
