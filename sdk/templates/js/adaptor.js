// {{name}}: a LogAdaptor. It translates records of the log into requests, which the host sends to the storage. This one
// writes to Redis: each row becomes the string `<prefix><key>` with the row's JSON. A single script writes the rows and moves
// the watermark, so that a replay changes nothing.

// Maximum size of the rows in one request, unless a single record is larger.
const REQUEST_BYTES_MAX = 256 * 1024;

// Numbers of a row's kind: insert, update, put, delete, add.
const DELETE = 3;

// KEYS: the watermark, then a key per row. ARGV: the watermark before and after, then `p` or `d` and a value per row.
const APPLY = `
local at = redis.call('GET', KEYS[1]) or '0'
if at ~= ARGV[1] then return redis.error_reply('MOVED ' .. at) end
for i = 2, #KEYS do
  if ARGV[2 * i - 1] == 'd' then redis.call('DEL', KEYS[i]) else redis.call('SET', KEYS[i], ARGV[2 * i]) end
end
redis.call('SET', KEYS[1], ARGV[2])
return redis.status_reply('OK')`;

// Errors of Redis that pass without an operator: the host sends the request again.
const PASSING = [
  'BUSY', 'CLUSTERDOWN', 'LOADING', 'MASTERDOWN', 'MISCONF', 'NOREPLICAS', 'OOM', 'READONLY', 'TRYAGAIN',
];

const encoder = new TextEncoder();
const bytesOf = (text) => encoder.encode(text);
const textOf = (bytes) => new TextDecoder().decode(bytes);
const [EVAL, SCRIPT, PUT_ROW, DELETE_ROW] = ['EVAL', APPLY, 'p', 'd'].map(bytesOf);

// Prefix of the keys of all rows: the only part of the store's configuration that this plugin uses. The host reads
// `endpoint`.
let prefix = bytesOf('');

// A command under construction, in columns that grow. JavaScript is interpreted here, so work per row should be small.
class Command {
  #bytes = new Uint8Array(4096);
  #length = 0;
  #ends = new Uint32Array(256);
  #count = 0;

  append(part) {
    const length = this.#length + part.length;
    if (length > this.#bytes.length) {
      const larger = new Uint8Array(2 * length);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    this.#bytes.set(part, this.#length);
    this.#length = length;
  }

  argument(part) {
    this.append(part);
    if (this.#count === this.#ends.length) {
      const larger = new Uint32Array(2 * this.#count);
      larger.set(this.#ends);
      this.#ends = larger;
    }
    this.#ends[this.#count++] = this.#length;
  }

  finished() {
    const [args, argEnds] = [this.#bytes.subarray(0, this.#length), this.#ends.subarray(0, this.#count)];
    return { tag: 'resp', val: { args, argEnds, commandEnds: Uint32Array.of(this.#count) } };
  }
}

function addWatermarkKey(command) {
  command.append(bytesOf('#watermark:'));
  command.argument(prefix);
}

// The reply to the first command: { tag: 'nil' | 'int' | 'text' | 'error', val }.
function answer(reply) {
  if (reply.tag !== 'resp' || reply.val.length === 0) throw new Error('not a reply of Redis');
  return reply.val[0];
}

const shown = ({ tag, val }) => `${tag} ${tag === 'text' ? textOf(val) : String(val)}`;

export const lifecycle = {
  describe() {
    const about = 'Writes rows to Redis as strings, with their watermark in one script.';
    return { name: '{{name}}', version: '0.1.0', about };
  },

  // Gets the configuration, JSON text. To reject it, throw an error: its message is the reason.
  init(config) {
    let found;
    try {
      found = JSON.parse(config || '{}');
    } catch (error) {
      throw new Error(`configuration: ${error.message}`);
    }
    // A setting that is not listed here would have no effect. The host reads `endpoint` and `user`.
    const unknown = Object.keys(found).find((name) => !['endpoint', 'user', 'prefix'].includes(name));
    if (unknown !== undefined) throw new Error(`configuration: unknown setting \`${unknown}\``);
    if (typeof (found.prefix ?? '') !== 'string') throw new Error('configuration: `prefix` must be a text');
    prefix = bytesOf(found.prefix ?? '');
  },
};

// Builds the request for the records from index `start` up to, but not including, `end`.
function request(batch, start, end) {
  const [first, last] = [batch.lsn[start], batch.lsn[end - 1]];
  const { bytes, kind, keyAt, keyLen, valueAt, valueLen, rowEnds } = batch;
  const [from, until] = [start === 0 ? 0 : rowEnds[start - 1], rowEnds[end - 1]];
  const command = new Command();
  for (const part of [EVAL, SCRIPT, bytesOf(String(1 + until - from))]) command.argument(part);
  addWatermarkKey(command);
  for (let row = from; row < until; row += 1) {
    if (prefix.length > 0) command.append(prefix);
    command.argument(bytes.subarray(keyAt[row], keyAt[row] + keyLen[row]));
  }
  for (const lsn of [first - 1n, last]) command.argument(bytesOf(String(lsn)));
  for (let row = from; row < until; row += 1) {
    command.argument(kind[row] === DELETE ? DELETE_ROW : PUT_ROW);
    command.argument(bytes.subarray(valueAt[row], valueAt[row] + valueLen[row]));
  }
  return { first, last, idempotencyKey: `${batch.store}:${first}-${last}`, command: command.finished() };
}

export const adaptor = {
  // The kinds of writes that the adaptor supports. A string cannot be added to, so `add` is missing: the service rejects
  // commits with an `add` to this store.
  takes() {
    return { insert: true, update: true, put: true, delete: true, add: false };
  },

  watermark() {
    const command = new Command();
    command.argument(bytesOf('GET'));
    addWatermarkKey(command);
    return { first: 0n, last: 0n, idempotencyKey: 'watermark', command: command.finished() };
  },

  // If this throws, the host passes the same reply to `classify`, and asks again later if that returns `retry`. After anything
  // else, the push stops with the error.
  readWatermark(reply) {
    const found = answer(reply);
    if (found.tag === 'nil') return 0n;
    const text = found.tag === 'text' ? textOf(found.val) : '';
    if (!/^\d+$/.test(text)) throw new Error(`no watermark: ${shown(found)}`);
    return BigInt(text);
  },

  // Groups of whole records, in order.
  encode(batch) {
    const requests = [];
    let [start, row, bytes] = [0, 0, 0];
    for (let record = 0; record < batch.lsn.length; record += 1) {
      let own = 0;
      for (; row < batch.rowEnds[record]; row += 1) own += batch.keyLen[row] + batch.valueLen[row] + 16;
      if (record > start && bytes + own > REQUEST_BYTES_MAX) {
        requests.push(request(batch, start, record));
        [start, bytes] = [record, 0];
      }
      bytes += own;
    }
    if (start < batch.lsn.length) requests.push(request(batch, start, batch.lsn.length));
    return requests;
  },

  classify(reply) {
    let found;
    try {
      found = answer(reply);
    } catch (error) {
      return { tag: 'fatal', val: error.message };
    }
    if (found.tag === 'text' && textOf(found.val) === 'OK') return { tag: 'ok' };
    const error = found.tag === 'error' ? found.val : '';
    // The script returns `MOVED` if the watermark is not where it was expected.
    if (error.startsWith('MOVED ')) return { tag: 'moved', val: error };
    if (PASSING.some((word) => error.startsWith(word))) return { tag: 'retry', val: error };
    return { tag: 'fatal', val: shown(found) };
  },
};
