// {{name}}: a conflict rule. It decides which transaction wins a contended row: it computes a rank for each contended
// transaction from the transaction's own columns; the lowest rank wins, and equal ranks are ordered by arrival. Lists are
// typed arrays, 64-bit numbers are BigInts.

export const lifecycle = {
  describe() {
    return { name: '{{name}}', version: '0.1.0', about: 'The transaction that arrived first wins.' };
  },

  // Gets the configuration, JSON text. To reject it, throw an error: its message is the reason.
  init(config) {
    if (!/^\s*(\{\s*\})?\s*$/.test(config)) throw new Error('configuration: this plugin has no configuration');
  },
};

export const rule = {
  // Columns that are not named here arrive empty: csn, start, origin, priority, reads, writes, firstAttempt.
  needs() {
    return { csn: true };
  },

  rank(batch) {
    const hi = new BigUint64Array(batch.count);
    return { hi, lo: batch.csn };
  },
};
