// All scenarios, one after another, at a fixed arrival rate: a slow service gets no fewer transactions, it falls
// behind.
//
//   bash loadtest/k6/run.sh            a short run on a server of its own
//   k6 run -e URL=http://... -e RATE=500 -e SECONDS=60 loadtest/k6/suite.js
//
// k6 uses over 100 us of CPU per request: use it to see how a service behaves under a given load, and `tribunal-bench`
// to find its limits. Correctness has thresholds without tolerance. Speed has generous ones, because the same run has
// to pass on a busy machine.
import { head } from './lib/api.js';
import { bankAudit, bankCheck, bankLoad, bankTransfer } from './scenarios/bank.js';
import { consume } from './scenarios/consumers.js';
import { hotAdd, hotCheck, hotLoad } from './scenarios/hot.js';
import { spikeTransfer } from './scenarios/spike.js';
import { ycsbA, ycsbB, ycsbC, ycsbD, ycsbE, ycsbF, ycsbLoad } from './scenarios/ycsb.js';
import { summary } from './lib/report.js';

export { bankAudit, bankTransfer, consume, hotAdd, spikeTransfer, ycsbA, ycsbB, ycsbC, ycsbD, ycsbE, ycsbF };

const rate = Number(__ENV.RATE || 100);
const seconds = Number(__ENV.SECONDS || 6);
// Unanswered work of one scenario may continue for this long, in parallel with the next one.
const gap = 1;

const loads = [
  ['ycsb_a', 'ycsbA', 1], ['ycsb_b', 'ycsbB', 1], ['ycsb_c', 'ycsbC', 1],
  ['ycsb_d', 'ycsbD', 1], ['ycsb_e', 'ycsbE', 0.5], ['ycsb_f', 'ycsbF', 1],
  ['bank', 'bankTransfer', 1], ['hot', 'hotAdd', 2],
];

const scenarios = {};
const thresholds = {
  correctness: ['rate==1'],
  hot_unaccounted: ['count==0'],
  log_records: ['count>0'],
  http_req_failed: ['rate==0'],
  dropped_iterations: ['count<3000'],
  verdict_ms: ['p(95)<10000'],
};
let offered = 0;
let start = 0;

function expect(name, iterations) {
  offered += iterations;
  thresholds[`txns_committed{scenario:${name}}`] = [`count>=${Math.floor(iterations / 2)}`];
  thresholds[`txns_attempted{scenario:${name}}`] = ['count>0'];
  thresholds[`verdict_ms{scenario:${name}}`] = ['p(95)<10000'];
}

for (const [name, exec, factor] of loads) {
  const perSecond = Math.ceil(rate * factor);
  scenarios[name] = {
    executor: 'constant-arrival-rate', exec, rate: perSecond, timeUnit: '1s', duration: `${seconds}s`,
    startTime: `${start}s`, preAllocatedVUs: 32, maxVUs: 640, gracefulStop: '10s',
  };
  expect(name, perSecond * seconds);
  if (name === 'bank') {
    scenarios.bank_audit = { ...scenarios.bank, exec: 'bankAudit', rate: 5, preAllocatedVUs: 2, maxVUs: 8 };
    thresholds['txns_committed{scenario:bank_audit}'] = ['count>0'];
  }
  start += seconds + gap;
}

scenarios.spike = {
  executor: 'ramping-arrival-rate', exec: 'spikeTransfer', startRate: rate / 2, timeUnit: '1s',
  startTime: `${start}s`, preAllocatedVUs: 64, maxVUs: 640, gracefulStop: '10s',
  stages: [
    { target: rate / 2, duration: `${seconds / 3}s` },
    { target: rate * 5, duration: '1s' },
    { target: rate * 5, duration: `${seconds / 3}s` },
    { target: rate / 2, duration: '1s' },
    { target: rate / 2, duration: `${seconds / 3}s` },
  ],
};
expect('spike', rate * seconds);
start += seconds + 2 + gap;

scenarios.consumers = {
  executor: 'per-vu-iterations', exec: 'consume', vus: 2, iterations: 1, maxDuration: `${start + 30}s`,
};

export const options = {
  scenarios, thresholds, setupTimeout: '120s', teardownTimeout: '120s',
  summaryTrendStats: ['avg', 'med', 'p(95)', 'p(99)', 'max'],
};

export function setup() {
  const after = head();
  ycsbLoad();
  bankLoad();
  hotLoad();
  return { after, endsAt: Date.now() + start * 1000 };
}

export function teardown({ after }) {
  bankCheck(after);
  hotCheck(after);
}

export function handleSummary(data) {
  const names = [...loads.map(([name]) => name), 'spike'];
  return summary(data, names, { rate, seconds, offered });
}
