// Tribunal's API for virtual users: mints ids, commits with retries, reads rows, pulls logs, and counts.
//
// What is counted means the same in every scenario: an attempt is one posted transaction, goodput is committed
// transactions, and an abort is an attempt that was decided against. Whatever must never happen is a check of
// `correctness`, whose threshold is 100 %.
import http from 'k6/http';
import { sleep } from 'k6';
import { Counter, Rate, Trend } from 'k6/metrics';

const url = `${__ENV.URL || 'http://127.0.0.1:7420'}/v1`;
const json = { 'content-type': 'application/json' };
const attempts_max = 20;

export const correctness = new Rate('correctness');
const attempted = new Counter('txns_attempted');
const committed = new Counter('txns_committed');
const aborted = new Counter('txns_aborted');
const gaveUp = new Counter('txns_given_up');
const resolved = new Counter('replies_resolved_by_id');
const verdictMs = new Trend('verdict_ms', true);

// One counter a reason: a tag would show up in the summary only with a threshold of its own.
export const reasons = [
  'read_conflict', 'write_conflict', 'range_conflict', 'row_exists', 'row_missing', 'snapshot_too_old', 'order_conflict',
];
const byReason = Object.fromEntries([...reasons, 'other'].map((name) => [name, new Counter(`aborts_${name}`)]));

// Counts one thing that must hold, and says what did not.
export function must(holds, what) {
  correctness.add(holds);
  if (!holds) console.error(`does not hold: ${what}`);
  return holds;
}

function hex(digits) {
  let text = '';
  while (text.length < digits) text += Math.floor(Math.random() * 0x10000).toString(16).padStart(4, '0');
  return text.slice(0, digits);
}

// A UUIDv7: the client mints the id, so that a lost reply can be asked for again.
export function mintId() {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(3)}-8${hex(3)}-${hex(12)}`;
}

// Posts one transaction and returns its outcome; null if there is no decision.
export function post(txn) {
  const id = mintId();
  const reply = http.post(`${url}/txns/${id}/commit`, JSON.stringify(txn), {
    headers: json,
    tags: { name: 'commit' },
    responseCallback: http.expectedStatuses(200),
  });
  let outcome;
  if (reply.status === 0) {
    // The reply is lost, not the transaction: its id tells.
    resolved.add(1);
    const told = http.get(`${url}/txns/${id}?wait_ms=5000&fence=true`, { tags: { name: 'status' } });
    if (!must(told.status === 200, `GET the status of ${id}: ${told.status} ${told.body}`)) return null;
    outcome = told.json();
  } else {
    if (!must(reply.status === 200, `a decision: ${reply.status} ${reply.body}`)) return null;
    outcome = reply.json();
    verdictMs.add(reply.timings.duration);
  }
  attempted.add(1);
  if (outcome.status === 'committed') {
    committed.add(1);
    return outcome;
  }
  if (!must(outcome.status === 'aborted', `a final status: ${JSON.stringify(outcome)}`)) return null;
  aborted.add(1);
  (byReason[outcome.reason] || byReason.other).add(1);
  return outcome;
}

// Executes `build` and posts what it returns, again on fresh reads while the service says that this may help.
// Returns the committed outcome; null if there is none.
export function transact(build) {
  for (let attempt = 1; attempt <= attempts_max; attempt += 1) {
    const outcome = post(build());
    if (!outcome) return null;
    if (outcome.status === 'committed') return outcome;
    if (!outcome.retryable) break;
    sleep((Math.random() * Math.min(2 ** attempt, 64) + (outcome.retry_after_ms || 0)) / 1000);
  }
  gaveUp.add(1);
  return null;
}

// Posts blind writes as batches, for rows that must be there at the start.
export function load(writes, perTxn = 200) {
  const txns = [];
  for (let at = 0; at < writes.length; at += perTxn) {
    txns.push({ txn_id: mintId(), isolation: 'read-committed', writes: writes.slice(at, at + perTxn) });
  }
  for (let at = 0; at < txns.length; at += 50) {
    const body = JSON.stringify({ txns: txns.slice(at, at + 50) });
    const reply = http.post(`${url}/txns/batch-commit`, body, { headers: json, tags: { name: 'load' } });
    const loaded = reply.status === 200 && reply.json().results.every((item) => item.status === 'committed');
    if (!loaded) throw new Error(`rows could not be loaded: ${reply.status} ${reply.body}`);
  }
  settle();
}

export const put = (key, value) => ({ op: 'put', store: 'kv', key, value });
export const insert = (key, value) => ({ op: 'insert', store: 'kv', key, value });
export const add = (key, value) => ({ op: 'add', store: 'kv', key, value });

// Reads a row: { key, value, version, applied }, without a version if it is absent.
export function row(key) {
  const reply = http.get(`${url}/stores/kv/rows/${encodeURIComponent(key)}`, {
    tags: { name: 'row' },
    responseCallback: http.expectedStatuses(200, 404),
  });
  if (!must(reply.status === 200 || reply.status === 404, `a row: ${reply.status} ${reply.body}`)) return { key };
  return reply.status === 200 ? reply.json() : { key, applied: reply.json().applied };
}

// Reads the rows of a range: { applied, rows, more }.
export function scan(start, end, limit) {
  const query = `start=${encodeURIComponent(start)}&end=${encodeURIComponent(end)}&limit=${limit}`;
  const reply = http.get(`${url}/stores/kv/rows?${query}`, { tags: { name: 'scan' } });
  return must(reply.status === 200, `a scan: ${reply.status} ${reply.body}`) ? reply.json() : { applied: '0', rows: [] };
}

// What a commit says about a row that was read.
export function observed(seen) {
  const read = { store: 'kv', key: seen.key };
  if (seen.version) read.version = seen.version;
  return read;
}

// Pulls one page of the log after `after`, waiting up to `waitMs` for its first record.
export function pull(after, limit, waitMs) {
  const reply = http.get(`${url}/log?store=kv&after=${after}&limit=${limit}&wait_ms=${waitMs}`, {
    tags: { name: 'log' },
    timeout: `${waitMs + 30000}ms`,
  });
  return must(reply.status === 200, `a log page: ${reply.status} ${reply.body}`) ? reply.json() : null;
}

// Returns the last position of the log.
export function head() {
  const page = pull('0', 1, 0);
  return page ? page.head_lsn : '0';
}

// Waits until the store has applied everything that is committed.
export function settle() {
  for (let tries = 0; tries < 600; tries += 1) {
    const { committed: goal, applied } = http.get(`${url}/snapshot?store=kv`, { tags: { name: 'snapshot' } }).json();
    if (BigInt(applied) >= BigInt(goal)) return true;
    sleep(0.05);
  }
  return false;
}

// Waits until all is applied, then calls `visit` with each log record after `after`.
export function replay(after, visit) {
  must(settle(), 'the store applies the whole log within 30 s');
  const end = BigInt(head());
  let next = after;
  while (BigInt(next) < end) {
    const page = pull(next, 5000, 0);
    if (!page || !must(page.records.length > 0, `records between ${next} and ${end}`)) return;
    page.records.forEach(visit);
    next = page.next;
  }
}
