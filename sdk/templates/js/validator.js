// {{name}}: an isolation validator. It replaces the validator of a level and must reject at least what that level forbids;
// this one implements repeatable read: every row must still have the version that was read.

// A built-in reason. Reasons of plugins have the codes 1 to 127, those from 64 on for good.
const READ_CONFLICT = 128;
const NO_WITNESS = 0xffffffff;

export const lifecycle = {
  describe() {
    const about = 'Rejects a transaction if a row that it read has changed.';
    return { name: '{{name}}', version: '0.1.0', about };
  },

  // Gets the configuration, JSON text. To reject it, throw an error: its message is the reason.
  init(config) {
    if (!/^\s*(\{\s*\})?\s*$/.test(config)) throw new Error('configuration: this plugin has no configuration');
  },
};

// A column of 64-bit numbers as pairs of 32-bit numbers, which can be compared without creating BigInts.
const halves = (column) => new Uint32Array(column.buffer, column.byteOffset, 2 * column.length);

export const validator = {
  // Lists of groups that are not named here arrive empty: txns, snapshots, reads, ranges, writes, epochs.
  needs() {
    return { reads: true };
  },

  validate({ count, reads }) {
    const { ends } = reads;
    const [seen, latest] = [halves(reads.seen), halves(reads.latest)];
    const code = new Uint8Array(count);
    const witness = new Uint32Array(count).fill(NO_WITNESS);
    let at = 0;
    // Each transaction is judged by itself.
    for (let t = 0; t < count; t += 1) {
      const start = at;
      for (; at < ends[t]; at += 1) {
        const changed = seen[2 * at] !== latest[2 * at] || seen[2 * at + 1] !== latest[2 * at + 1];
        if (changed && code[t] === 0) {
          code[t] = READ_CONFLICT;
          witness[t] = at - start;
        }
      }
    }
    return { code, witness };
  },
};
