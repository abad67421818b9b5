// Money moves between a few accounts, and every audit must find all of it: an audit is a transaction that scans all
// accounts, so if it commits, its sum is that of one moment in a serial history.
import { load, must, observed, put, replay, row, scan, transact } from '../lib/api.js';

const accounts = 200;
const opening = 1000;
const key = (number) => `bank/${String(number).padStart(4, '0')}`;
const all = { store: 'kv', start: 'bank/', end: 'bank0' };

export function bankLoad() {
  load(Array.from({ length: accounts }, (_, number) => put(key(number), opening)));
}

export function bankTransfer() {
  const from = Math.floor(Math.random() * accounts);
  const to = (from + 1 + Math.floor(Math.random() * (accounts - 1))) % accounts;
  transact(() => {
    const [payer, payee] = [row(key(from)), row(key(to))];
    const amount = Math.floor(Math.random() * (payer.value + 1));
    return {
      reads: [observed(payer), observed(payee)],
      writes: [put(key(from), payer.value - amount), put(key(to), payee.value + amount)],
    };
  });
}

const sum = (rows) => rows.reduce((total, { value }) => total + value, 0);

function wholeSum(found, where) {
  must(found.length === accounts, `${accounts} accounts ${where}, not ${found.length}`);
  must(sum(found) === accounts * opening, `${accounts * opening} of money ${where}, not ${sum(found)}`);
  must(found.every(({ value }) => value >= 0), `no account below zero ${where}`);
}

export function bankAudit() {
  let page;
  const seen = transact(() => {
    page = scan(all.start, all.end, accounts + 1);
    return { snapshots: { kv: page.applied }, ranges: [all] };
  });
  if (seen) wholeSum(page.rows, 'in a committed audit');
}

// At the end: the money in the store, and every row according to the log.
export function bankCheck(after) {
  const told = {};
  replay(after, (record) => record.writes.forEach((write) => { told[write.key] = [write.value, record.version]; }));
  const { rows } = scan(all.start, all.end, accounts + 1);
  wholeSum(rows, 'at the end');
  const same = rows.every(({ key: name, value, version }) => told[name] && told[name][0] === value && told[name][1] === version);
  must(same, 'the store equals the log');
}
