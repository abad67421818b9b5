// Load on the commit route from many virtual users, with thresholds for an operator's own service.
//
//   k6 run -e URL=http://127.0.0.1:7420 -e RATE=500 loadtest/k6/commit.js
//
// k6 spends over 100 us of CPU a request: use it to see how a service behaves under a given load, and
// `tribunal-bench` to find its limits.
import http from 'k6/http';
import { check } from 'k6';
import { Counter, Rate } from 'k6/metrics';

const url = __ENV.URL || 'http://127.0.0.1:7420';
const rows = Number(__ENV.ROWS || 10000);
const committed = new Counter('txns_committed');
const aborted = new Rate('txns_aborted');

export const options = {
  scenarios: {
    commits: {
      executor: 'constant-arrival-rate',
      rate: Number(__ENV.RATE || 500),
      timeUnit: '1s',
      duration: __ENV.DURATION || '30s',
      preAllocatedVUs: 64,
      maxVUs: 512,
    },
  },
  thresholds: {
    checks: ['rate==1'],
    http_req_failed: ['rate==0'],
  },
};

// What this user knows of the rows, as an engine's cache would.
const versions = {};

function hex(digits) {
  let text = '';
  while (text.length < digits) text += Math.floor(Math.random() * 0x10000).toString(16).padStart(4, '0');
  return text.slice(0, digits);
}

// A UUIDv7: the client mints the id, so that a lost reply can be asked for again.
function mintId() {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(3)}-8${hex(3)}-${hex(12)}`;
}

export default function () {
  const key = `k6/${Math.floor(Math.random() * rows)}`;
  const read = { store: 'kv', key };
  if (versions[key]) read.version = versions[key];
  const body = { reads: [read], writes: [{ op: 'put', store: 'kv', key, value: { at: Date.now() } }] };
  const reply = http.post(`${url}/v1/txns/${mintId()}/commit`, JSON.stringify(body), {
    headers: { 'content-type': 'application/json' },
    tags: { name: 'commit' },
  });
  check(reply, { 'a decision was made': (r) => r.status === 200 });
  if (reply.status !== 200) return;
  const verdict = reply.json();
  aborted.add(verdict.status === 'aborted');
  if (verdict.status === 'committed') {
    committed.add(1);
    versions[key] = verdict.version;
    return;
  }
  for (const conflict of verdict.conflicts || []) {
    if (conflict.current_version) versions[conflict.key] = conflict.current_version;
    else delete versions[conflict.key];
  }
}
