// Consumers that follow the log by long polls while the other scenarios write it: positions are dense, no record is
// duplicated or missing, and versions never decrease.
import { must, pull } from '../lib/api.js';
import { Counter, Trend } from 'k6/metrics';
import exec from 'k6/execution';

const records = new Counter('log_records');
const lag = new Trend('log_records_behind');

export function consume({ after, endsAt }) {
  // A consumer is one iteration: it follows the log until the load has ended.
  let [next, version] = [BigInt(after), 0n];
  while (Date.now() < endsAt) {
    const page = pull(next, 1000, 500);
    if (!page) return;
    for (const record of page.records) {
      const [lsn, prev, made] = [BigInt(record.lsn), BigInt(record.prev_lsn), BigInt(record.version)];
      if (!must(lsn === next + 1n && prev === next, `record ${next + 1n} after ${next}, not ${lsn} after ${prev}`)) return;
      if (!must(made >= version, `version ${made} after ${version} at record ${lsn}`)) return;
      [next, version] = [lsn, made];
    }
    records.add(page.records.length);
    if (page.records.length > 0) lag.add(Number(BigInt(page.head_lsn) - next));
    must(BigInt(page.next) === next, `the page's next is ${page.next}, its last record ${next}`);
  }
  must(next > BigInt(after), `consumer ${exec.vu.idInTest} received records`);
}
