// A sudden rise to many times the usual rate and back: everything is still decided, and latency recovers.
import { observed, put, row, transact } from '../lib/api.js';

const rows = 2000;

export function spikeTransfer() {
  const key = `spike/${Math.floor(Math.random() * rows)}`;
  transact(() => {
    const seen = row(key);
    return { reads: [observed(seen)], writes: [put(key, { at: Date.now() })] };
  });
}
