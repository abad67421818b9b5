// The report of a run: a JSON document for machines, an HTML page and a few lines for people.
import { reasons } from './api.js';

const count = (data, name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
const trend = (data, name) => (data.metrics[name] ? data.metrics[name].values : {});
const ms = (value) => (value === undefined ? '-' : `${value.toFixed(1)} ms`);
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);

function figures(data, names, { seconds }) {
  return names.map((name) => {
    const [attempted, committed] = ['attempted', 'committed'].map((what) => count(data, `txns_${what}{scenario:${name}}`));
    const latency = trend(data, `verdict_ms{scenario:${name}}`);
    const length = name === 'spike' ? seconds + 2 : seconds;
    return {
      name, attempted, committed, goodput_per_s: committed / length,
      abort_share: attempted > 0 ? 1 - committed / attempted : 0,
      p50_ms: latency.med, p95_ms: latency['p(95)'], p99_ms: latency['p(99)'],
    };
  });
}

function verdicts(data) {
  return Object.entries(data.metrics).flatMap(([metric, { thresholds }]) => (
    Object.entries(thresholds || {}).map(([threshold, { ok }]) => ({ metric, threshold, ok }))));
}

const table = (head, rows) => `<table><tr>${head.map((cell) => `<th>${escape(cell)}</th>`).join('')}</tr>${
  rows.map((cells) => `<tr>${cells.map((cell) => `<td>${escape(cell)}</td>`).join('')}</tr>`).join('')}</table>`;

function page({ scenarios, aborts, thresholds, totals, load }) {
  const largest = Math.max(1, ...scenarios.map(({ goodput_per_s: goodput }) => goodput));
  const bars = scenarios.map(({ name, goodput_per_s: goodput }, index) => `<text x="0" y="${index * 22 + 15}">${escape(name)}</text>
<rect x="90" y="${index * 22 + 3}" width="${(goodput / largest) * 420}" height="15"/><text x="${96 + (goodput / largest) * 420}" y="${index * 22 + 15}">${goodput.toFixed(0)}/s</text>`);
  const failed = thresholds.filter(({ ok }) => !ok).length;
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tribunal under k6</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d2733}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;border-bottom:1px solid #d6dde5;text-align:right}
td:first-child,th:first-child{text-align:left}svg{font-size:13px}rect{fill:#2f6f9f}.bad{color:#b3261e}</style></head><body>
<h1>Tribunal under k6</h1><p>${escape(`${load.rate} transactions a second, ${load.seconds} s a scenario`)}:
${totals.committed} committed of ${totals.attempted} attempts, ${totals.dropped} arrivals dropped by the client.
<strong class="${failed ? 'bad' : ''}">${failed} of ${thresholds.length} thresholds failed.</strong></p>
<h2>Goodput</h2><svg width="640" height="${scenarios.length * 22 + 6}" role="img" aria-label="Goodput by scenario">${bars.join('')}</svg>
${table(['scenario', 'committed/s', 'attempts', 'aborted', 'p50', 'p95', 'p99'], scenarios.map((s) => [
    s.name, s.goodput_per_s.toFixed(1), s.attempted, `${(100 * s.abort_share).toFixed(2)} %`, ms(s.p50_ms), ms(s.p95_ms), ms(s.p99_ms)]))}
<h2>Aborts by reason</h2>${table(['reason', 'attempts'], Object.entries(aborts))}
<h2>Log</h2>${table(['figure', 'value'], [['records received by consumers', totals.log_records], ['p95 lag, records', totals.behind_p95]])}
<h2>Thresholds</h2>${table(['metric', 'threshold', 'holds'], thresholds.map((t) => [t.metric, t.threshold, t.ok ? 'yes' : 'NO']))}
</body></html>\n`;
}

// Returns the output of k6 at the end: files in OUT (default: the current folder), and lines for the terminal.
export function summary(data, names, load) {
  const folder = __ENV.OUT || '.';
  const aborts = {};
  for (const name of [...reasons, 'other']) if (count(data, `aborts_${name}`)) aborts[name] = count(data, `aborts_${name}`);
  const document = {
    load,
    totals: {
      attempted: count(data, 'txns_attempted'), committed: count(data, 'txns_committed'), given_up: count(data, 'txns_given_up'),
      dropped: count(data, 'dropped_iterations'), log_records: count(data, 'log_records'),
      behind_p95: trend(data, 'log_records_behind')['p(95)'] || 0,
    },
    scenarios: figures(data, names, load), aborts, thresholds: verdicts(data), metrics: data.metrics,
  };
  const lines = document.scenarios.map((s) => `${s.name.padEnd(8)} ${s.goodput_per_s.toFixed(1).padStart(8)} committed/s, ${
    (100 * s.abort_share).toFixed(2).padStart(6)} % aborted, p50 ${ms(s.p50_ms)}, p95 ${ms(s.p95_ms)}, p99 ${ms(s.p99_ms)}`);
  const broken = document.thresholds.filter(({ ok }) => !ok).map((t) => `THRESHOLD MISSED: ${t.metric} ${t.threshold}`);
  const { attempted, committed, given_up: givenUp, dropped, log_records: records } = document.totals;
  lines.push(`${committed} committed of ${attempted} attempts, ${givenUp} given up, ${dropped} arrivals dropped, ${records} log records pulled`);
  lines.push(`aborts: ${Object.entries(aborts).map(([name, n]) => `${name} ${n}`).join(', ') || 'none'}`);
  lines.push(...broken, `${document.thresholds.length - broken.length} of ${document.thresholds.length} thresholds hold`);
  return {
    stdout: `${lines.join('\n')}\n`,
    [`${folder}/summary.json`]: JSON.stringify(document, null, 1),
    [`${folder}/report.html`]: page(document),
  };
}
