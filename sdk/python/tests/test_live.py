"""The client against a live server: commits, conflicts, retries, batches, log readers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tribunal_client import (
    Aborted,
    Client,
    ClientMistake,
    Committed,
    Misuse,
    Offset,
    RetryPolicy,
    StoreDeclaration,
    Transaction,
    TransactionAborted,
    Unavailable,
    Verdict,
    WouldAbort,
    WouldCommit,
)


def committed(verdict: Verdict) -> Committed:
    assert isinstance(verdict, Committed), verdict
    return verdict


def aborted(verdict: Verdict) -> Aborted:
    assert isinstance(verdict, Aborted), verdict
    return verdict


def put(client: Client, key: str, value: object) -> Committed:
    txn = client.begin_local()
    txn.put("kv", key, value)
    return committed(txn.commit())


def read(client: Client, key: str) -> object:
    row = client.run(lambda txn: txn.get("kv", key), ["kv"]).value
    return None if row is None else row.value


def test_a_commit_writes_rows_that_later_transactions_read(client: Client, prefix: str) -> None:
    binary = b"\xff" + prefix.encode()
    first = client.begin(["kv"])
    assert first.get("kv", prefix + "a") is None
    first.insert("kv", prefix + "a", {"balance": 100})
    first.put("kv", binary, [1, "two", None, 2**60])
    own = first.get("kv", prefix + "a")
    assert own is not None
    assert own.value == {"balance": 100}, "own writes are read"
    won = committed(first.commit())
    assert won.version is not None
    assert won.lsn["kv"] > 0

    second = client.begin(["kv"], session=won.session, wait_s=60)
    assert second.snapshots["kv"] >= won.epoch
    row = second.get("kv", prefix + "a")
    assert row is not None
    assert (row.version, row.value) == (won.version, {"balance": 100})
    found = client.row("kv", binary)
    assert found is not None
    assert (found.key, found.value) == (binary, [1, "two", None, 2**60])
    second.update("kv", prefix + "a", {"balance": 90})
    second.delete("kv", binary)
    committed(second.commit())


@pytest.mark.parametrize("key", [".", "..", "a/../b", "%2e%2e", "gr\u00fcn ?&#+", b"\xff\x00"])
def test_keys_that_resemble_paths_or_escapes_are_taken_literally(client: Client, key: str | bytes) -> None:
    txn = client.begin_local()
    txn.put("kv", key, "here")
    session = committed(txn.commit()).session
    again = client.begin(["kv"], session=session, wait_s=60)
    row = again.get("kv", key)
    assert row is not None
    assert (row.key, row.value) == (key, "here")
    end = (key if isinstance(key, bytes) else key.encode()) + b"\0"
    assert [row.key for row in again.scan("kv", key, end)] == [key]


def test_an_abort_names_the_conflicting_row_and_its_versions(client: Client, prefix: str) -> None:
    key = prefix + "a"
    version = put(client, key, 1).version
    one, two = client.begin_local(), client.begin_local()
    for txn in (one, two):
        txn.observe("kv", key, version)
        txn.update("kv", key, 2)
    winner = committed(one.commit())
    foreseen = two.validate()
    assert isinstance(foreseen, WouldAbort)
    loser = aborted(two.commit())
    assert (loser.reason, loser.retryable) == ("read_conflict", True)
    assert (foreseen.reason, foreseen.retryable) == ("read_conflict", True)
    assert foreseen.conflicts[0].current_version == winner.version
    assert isinstance(client.begin_local().validate(), WouldCommit)
    assert isinstance(two.validate(), Aborted)
    [conflict] = loser.conflicts
    assert (conflict.store, conflict.key) == ("kv", key)
    assert (conflict.read_version, conflict.current_version) == (version, winner.version)


def test_a_phantom_in_a_scanned_range_aborts(client: Client, prefix: str) -> None:
    txn = client.begin(["kv"])
    txn.put("kv", prefix + "own", 0)
    assert [row.key for row in txn.scan("kv", prefix, prefix + "~")] == [prefix + "own"]
    other = client.begin_local()
    other.insert("kv", prefix + "phantom", 1)
    won = committed(other.commit())
    assert aborted(txn.commit()).reason == "range_conflict"
    again = client.begin(["kv"], session=won.session, wait_s=60)
    rows = again.scan("kv", prefix, prefix + "~")
    assert [(row.key, row.value, row.version) for row in rows] == [(prefix + "phantom", 1, won.version)]


def test_run_repeats_the_work_on_fresh_reads_after_a_conflict(client: Client, prefix: str) -> None:
    key = prefix + "a"
    session = put(client, key, 1).session
    seen: list[int] = []

    def work(txn: Transaction) -> int:
        row = txn.get("kv", key)
        assert row is not None
        seen.append(row.value)
        if len(seen) == 1:
            put(client, key, 10)  # Somebody else is faster, once.
        txn.put("kv", key, row.value + 1)
        return int(row.value) + 1

    assert client.run(work, ["kv"], session=session, wait_s=60).value == 11
    assert seen[0] == 1
    assert len(seen) > 1
    assert read(client, key) == 11


def test_no_increment_of_many_concurrent_ones_is_lost(client: Client, prefix: str) -> None:
    key = prefix + "counter"
    session = put(client, key, 0).session

    def increment(txn: Transaction) -> None:
        row = txn.get("kv", key)
        assert row is not None
        txn.update("kv", key, row.value + 1)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(client.run, increment, ["kv"], session=session, wait_s=60) for _ in range(40)]:
            done.result()
    assert read(client, key) == 40


def test_run_does_not_repeat_final_aborts_or_errors_of_the_work(client: Client, prefix: str) -> None:
    key = prefix + "a"
    put(client, key, "text")
    attempts: list[str] = []

    def insert(txn: Transaction) -> None:
        attempts.append("insert")
        txn.insert("kv", key, 2)

    def add(txn: Transaction) -> None:
        attempts.append("add")
        txn.get("kv", prefix + "other")
        txn.add("kv", key, 2)

    def fail(_: Transaction) -> None:
        raise LookupError("mine")

    with pytest.raises(TransactionAborted) as exists:
        client.run(insert)
    assert exists.value.aborted.reason == "row_exists"
    with pytest.raises(TransactionAborted) as text:
        client.run(add)
    assert text.value.aborted.reason == "not_a_number"
    with pytest.raises(LookupError, match="mine"):
        client.run(fail)
    assert attempts == ["insert", "add"]


def test_adds_of_one_row_all_count(client: Client, prefix: str) -> None:
    key = prefix + "sum"
    put(client, key, 10)

    def add(delta: int) -> None:
        txn = client.begin_local()
        txn.add("kv", key, delta)
        committed(txn.commit())

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(add, range(10)))
    assert read(client, key) == 55


def test_a_batch_returns_the_result_of_each_commit_in_order(client: Client, prefix: str) -> None:
    good, blocked, lost = client.begin_local(), client.begin_local(), client.begin_local()
    good.insert("kv", prefix + "a", 1)
    blocked.update("kv", prefix + "missing", 1)
    lost.put("nowhere", "a", 1)
    first, second, third = client.batch([txn.prepare() for txn in (good, blocked, lost)])
    assert isinstance(first, Committed)
    assert isinstance(second, Aborted)
    assert second.reason == "row_missing"
    assert isinstance(third, ClientMistake)
    assert third.code == "unknown_store"


def test_the_log_is_read_in_order_from_an_offset_and_waits_for_further_records(client: Client, prefix: str) -> None:
    first = put(client, prefix + "a", 1).lsn["kv"]
    put(client, prefix + "b", 2)
    seen = []
    page = client.log("kv", first - 1, follow=False, page_max=1)
    for record in page:
        seen += [(write.op, write.key, write.value) for write in record.writes if str(write.key).startswith(prefix)]
    assert page.offset == page.head

    late = threading.Timer(0.2, put, (client, prefix + "c", 3))
    late.start()
    tail = client.log("kv", page.offset)
    for record in tail:
        mine = [(write.op, write.key, write.value) for write in record.writes if write.key == prefix + "c"]
        seen += mine
        if mine:
            break
    late.join()
    assert seen == [("put", prefix + "a", 1), ("put", prefix + "b", 2), ("put", prefix + "c", 3)]
    assert tail.next(wait_s=0) is None


def test_mistakes_have_a_code_and_pointers_and_are_not_retried(client: Client, prefix: str) -> None:
    txn = client.begin_local()
    txn.put("kv", prefix + "a", 1)
    prepared = txn.prepare()
    prepared.request.writes[0].key = prepared.request.reads  # type: ignore[index]
    with pytest.raises(ClientMistake) as mistake:
        client.commit(prepared)
    assert not mistake.value.retryable
    assert any(fault.pointer.startswith("/writes/0") for fault in mistake.value.errors)
    with pytest.raises(ClientMistake) as unknown:
        client.begin(["nowhere"])
    assert str(unknown.value).count("nowhere") == 1, "the detail is not repeated"
    with pytest.raises(Misuse, match="is one store"):
        client.begin("kv")
    with pytest.raises(Misuse, match="not int"):
        client.row("kv", 5)  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        txn.put("kv", "a", object())
    with pytest.raises(Misuse):
        txn.put("kv", "a", float("nan"))
    with pytest.raises(Misuse):
        txn.put("kv", "\ud800", 1)
    with pytest.raises(Misuse):
        txn.add("kv", "a", 2**63)
    with pytest.raises(Misuse):
        Client("localhost:7420")
    nobody = Client("http://127.0.0.1:1", retry=RetryPolicy(attempts_max=2))
    with pytest.raises(Unavailable) as unreachable:
        nobody.run(lambda _: None)
    assert unreachable.value.code == "unreachable"


def test_the_state_of_stores_is_reported(client: Client) -> None:
    assert "kv" in [store.store for store in client.stores()]
    kept = client.store("kv")
    assert kept.existence == "tracked"
    assert (kept.adaptor, kept.adaptor_config) == ("kv", {})
    assert kept.push.stopped_at_lsn is None
    lsn = put(client, "state-py", 1).lsn["kv"]
    # Other tests may have committed since.
    assert client.store("kv").head_lsn >= lsn
    assert (client.store("kv").rows or 0) > 0
    declared = client.declare_store("only-log-py", StoreDeclaration(existence="declared"))
    assert declared.push.state == "log_only"
    assert (declared.adaptor, declared.rows, declared.push.last_error) == (None, None, None)


def test_a_consumer_resumes_where_its_offset_is(client: Client, prefix: str) -> None:
    consumer = "search-" + prefix.replace("/", "-")

    put(client, f"{prefix}-consumed-0", 0)
    assert client.offset(consumer, "kv") is None
    log = client.log("kv", follow=False)
    for _ in log:
        pass
    assert log.log_id is not None
    set_to = client.set_offset(consumer, "kv", log.offset, log.log_id)
    assert [(at.store, at.lsn) for at in set_to.offsets] == [("kv", log.offset)]
    put(client, f"{prefix}-consumed-1", 1)
    offset = client.offset(consumer, "kv")
    assert offset == Offset(log.offset, log.log_id)
    resumed = client.log("kv", after=offset.lsn, log=offset.log)
    record = resumed.next(wait_s=60)
    assert record is not None
    assert record.lsn == offset.lsn + 1
    # A position past the head, and another log.
    for lsn, log_id, code in ((10**9, None, "position_beyond_head"), (1, "0" * 32, "log_replaced")):
        with pytest.raises(ClientMistake) as refused:
            client.set_offset(consumer, "kv", lsn, log_id)
        assert refused.value.problem.code == code
    assert consumer in [known.name for known in client.consumers()]
    client.forget_consumer(consumer)
    assert client.offset(consumer, "kv") is None
    with pytest.raises(ClientMistake) as unknown:
        client.forget_consumer(consumer)
    assert unknown.value.problem.code == "unknown_consumer"
