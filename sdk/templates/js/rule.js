// {{name}}: a conflict rule. It says who wins a contended row: each contended transaction gets a rank from its own columns,
// the lowest rank wins, equal ranks go to the first arrival. Lists are typed arrays, 64-bit numbers are BigInts.

export const lifecycle = {
  describe() {
    return { name: '{{name}}', version: '0.1.0', about: 'The transaction that arrived first wins.' };
  },

  // Takes the configuration, JSON text. Throwing a text refuses it.
  init(config) {
    if (!/^\s*(\{\s*\})?\s*$/.test(config)) throw 'configuration: this plugin takes none';
  },
};

export const rule = {
  // Columns that are not named here arrive empty: csn, start, origin, priority, reads, writes.
  needs() {
    return { csn: true };
  },

  rank(batch) {
    const hi = new BigUint64Array(batch.count);
    return { hi, lo: batch.csn };
  },
};
