/** Reads a store's committed log, record by record, from an offset that the caller keeps. */

import { described, duration, signalOf, type OptionNames } from "./arguments.js";
import type { Channel } from "./channel.js";
import { checksumOf } from "./checksum.js";
import { errorOf, Misuse, ServerMisbehaved, TribunalError, Unavailable, type Problem } from "./errors.js";
import type { JsonValue } from "./json.js";
import { keyOf, type Key } from "./keys.js";
import type { LineStream } from "./line_stream.js";
import type { components } from "./wire/schema.js";
import { onAbort } from "./limit.js";
import { sleep, waitMs } from "./retry.js";
import type { WriteOp } from "./writes.js";

/** Longest time that the service waits for a record, in milliseconds. */
const streamWaitMsMax = 60_000;

/** How long a call waits for a record by default, in milliseconds. */
const recordWaitMs = 10_000;

/**
 * Longest wait before an iteration tries to reach the service again, in milliseconds, whatever wait the service
 * requests.
 */
const reconnectWaitMsMax = 2_000;

type WireRecord = components["schemas"]["LogRecord"];

/** The writes of one committed transaction in one store. */
export interface LogRecord {
  /** Position in the log; positions have no gaps. */
  readonly lsn: string;
  /** Epoch that committed the transaction. */
  readonly epoch: string;
  /** Arrival stamp. */
  readonly csn: string;
  /** Version of every row that the transaction wrote. */
  readonly version: string;
  readonly txnId: string;
  readonly store: string;
  /** W3C trace context of the commit request. */
  readonly traceparent: string | undefined;
  readonly writes: readonly LogWrite[];
}

/** The write of one row. */
export interface LogWrite {
  /** A newer service may have operations that this client does not know; they are passed on. */
  readonly op: WriteOp;
  readonly key: Key;
  /** New value of the row; the delta of an `add`; `undefined` for a `delete`. */
  readonly value: JsonValue | undefined;
}

/** Options of a log reader. */
export interface LogOptions {
  /** Offset: the position of the last processed record. "0" reads from the beginning. */
  readonly after?: string | undefined;
  /**
   * The log that `after` belongs to: the `logId` of the reader that returned it. If the service's log has been salvaged
   * or replaced since, reads fail with the code `log_replaced`.
   */
  readonly log?: string | undefined;
  /** Whether an iteration waits for further records (default) or stops at the end of the log. */
  readonly follow?: boolean | undefined;
  /**
   * How long `next` waits for a record, milliseconds; 10 s by default. For 0, an iteration that follows the log uses
   * the default.
   */
  readonly waitMs?: number | undefined;
  /**
   * How long an iteration that follows the log tries to reach the service before it throws the last error,
   * milliseconds; 5 minutes by default. An attempt without a preceding failure always has the client's `timeoutMs`;
   * with 0 it is the only attempt. `next` ends after its wait and `timeoutMs`.
   */
  readonly reconnectMs?: number | undefined;
  /** Maximum number of records of one response, at most 10,000; none by default. */
  readonly pageMax?: number | undefined;
  /** Stops the iteration by throwing the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const logNames: OptionNames<LogOptions> = { after: true, log: true, follow: true, waitMs: true, reconnectMs: true, pageMax: true, signal: true };

/** A line of a stream that is not a record. */
interface LogEvent {
  readonly event: string;
  readonly log?: string;
  readonly epoch?: string;
  readonly head_lsn?: string;
  readonly reason?: string;
  readonly problem?: Problem;
}

/** The next step after a line: return a record, read another line, end the wait, or open another stream. */
type Step = LogRecord | "further" | "idle" | "limit";

/**
 * Reads a store's log in order, with `for await` or `next`, from a stream that it opens on demand, and reopens if the
 * connection is lost. Store `offset` and `logId` together with the results of your processing. To resume, pass them as
 * `after` and `log`.
 */
export class LogReader implements AsyncIterable<LogRecord> {
  readonly #channel: Channel;
  readonly #store: string;
  readonly #options: LogOptions;
  readonly #signal: AbortSignal | undefined;
  #offset: string;
  #log: string | undefined;
  #head = "0";
  #epoch = "0";
  #stream: LineStream | undefined;
  /** Whether a call of `next` is in progress. */
  #isReading = false;
  /** Whether `close` was called since the last `next` began. */
  #isClosed = false;
  /** Ends the wait of a call that has no stream: for an answer, or for the next attempt. */
  #waiting: AbortController | undefined;
  readonly #waitMsDefault: number;
  readonly #reconnectMs: number;
  /** Time since which an iteration has received no line from the service, on the clock of `performance.now`. */
  #lostAt: number | undefined;
  /** Whether the service has ever answered, with a line or a problem: until then, the address may be wrong. */
  #wasReached = false;

  /** @internal */
  constructor(channel: Channel, store: string, options: LogOptions) {
    this.#channel = channel;
    this.#store = store;
    this.#signal = signalOf(options, '{ after: "0" }', logNames);
    this.#options = options;
    // Without types, a number is a likely mistake, but unambiguous.
    const after: unknown = options.after ?? "0";
    this.#offset = String(after);
    this.#log = options.log;
    this.#waitMsDefault = options.waitMs ?? recordWaitMs;
    this.#reconnectMs = duration("reconnectMs", options.reconnectMs ?? 300_000);
  }

  /** Position of the last record returned. */
  get offset(): string {
    return this.#offset;
  }

  /** The log that `offset` belongs to; `undefined` until the first response, unless it was set. */
  get logId(): string | undefined {
    return this.#log;
  }

  /** Last position of the log, as of the last response: a few seconds old at most while records arrive. */
  get head(): string {
    return this.#head;
  }

  /**
   * Epoch up to which every commit was returned: a copy that has applied all records returned has everything that a
   * snapshot of this epoch includes. It advances with records, and with heartbeats, which a call receives while it
   * waits. "0" if nothing is known.
   */
  get epoch(): string {
    return this.#epoch;
  }

  /**
   * Returns the next record; `undefined` if none arrives within `wait` milliseconds. Retries while the service is
   * unavailable, until the client's `timeoutMs` past the wait. The stream stays open between two calls; see `close`. A
   * `wait` shorter than the one that the stream was opened with covers only records that arrive within it: 0 returns
   * only those that have already arrived. Call it again only after the promise has settled.
   */
  async next(wait = this.#waitMsDefault): Promise<LogRecord | undefined> {
    return this.#call(wait, false);
  }

  /** Reads the next record, for `next` or for an iteration that follows the log. */
  async #call(wait: number, follows: boolean): Promise<LogRecord | undefined> {
    const given: unknown = wait;
    if (typeof given !== "number" || Number.isNaN(given)) throw new Misuse(`\`wait\` must be a number of milliseconds, not ${described(given)}`);
    this.#refuseSecond();
    this.#isReading = true;
    this.#isClosed = false;
    this.#channel.readers.add(this);
    try {
      return await this.#next(wait, follows);
    } finally {
      this.#isReading = false;
      this.#unregister();
    }
  }

  /** Refuses a call while another one is in progress, which it must not disturb. */
  #refuseSecond(): void {
    if (this.#isReading) throw new Misuse("a log reader is already waiting for a record: await that call, or use a reader for each task");
  }

  async #next(wait: number, follows: boolean): Promise<LogRecord | undefined> {
    const signal = this.#signal;
    const asked = performance.now();
    const deadline = follows ? Infinity : asked + wait + this.#channel.timeoutMs;
    let [opened, capped] = [false, false];
    for (let failed = 1; ; ) {
      signal?.throwIfAborted();
      if (this.#wasClosed()) return undefined;
      let step: Step = "further";
      const begun = performance.now();
      try {
        if (this.#stream === undefined) {
          const left = Math.max(0, Math.ceil(wait - (performance.now() - asked)));
          [opened, capped] = [true, left > streamWaitMsMax];
          this.#stream = await this.#open(Math.min(left, streamWaitMsMax), this.#timeoutMs(deadline, follows));
        }
        signal?.throwIfAborted();
        if (this.#wasClosed()) continue;
        // The service enforces the wait that the stream was opened with; a shorter one is enforced here.
        const isShort = wait < this.#stream.waitMs && !opened;
        const line = await this.#line(this.#stream, (isShort ? asked + wait : deadline) - performance.now());
        if (line === undefined && isShort) return undefined;
        if (line === undefined) throw new Unavailable("the log stream was interrupted: nothing has arrived in time");
        [this.#lostAt, this.#wasReached] = [undefined, true];
        step = this.#take(line);
      } catch (error) {
        if (this.#wasClosed()) continue;
        if (error instanceof Unavailable && error.problem !== undefined) this.#wasReached = true;
        // The next stream continues after the same record elsewhere: all endpoints have the same log. A quota is this caller's,
        // and no fault of its endpoint.
        const isFault = error instanceof Unavailable && error.code !== "quota_exceeded" && signal?.aborted !== true;
        if (this.#stream !== undefined && isFault) this.#channel.endpointFailed(this.#stream.endpoint);
        this.#lostAt ??= this.#stream === undefined ? begun : performance.now();
        this.#end();
        signal?.throwIfAborted();
        const pause = error instanceof Unavailable ? this.#waitMs(failed, error.retryAfterMs, follows) : undefined;
        if (pause === undefined || performance.now() + pause >= deadline) throw error;
        failed++;
        await this.#interruptible((stop) => sleep(pause, stop)).catch(() => undefined);
      }
      if (typeof step === "object") return step;
      if (step === "further") continue;
      this.#end();
      // If the stream had ended before this call, there may be newer records.
      if (step === "idle" && opened && !capped) return undefined;
    }
  }

  /**
   * Ends the stream, if one is open. A call of `next` that waits returns `undefined`, and an iteration ends. The reader
   * can be used again.
   */
  close(): void {
    this.#isClosed = true;
    this.#waiting?.abort();
    this.#end();
  }

  /** Returns whether `close` ended the call in progress, and ends a stream that was opened meanwhile. */
  #wasClosed(): boolean {
    if (this.#isClosed) this.#end();
    return this.#isClosed;
  }

  #end(): void {
    this.#stream?.close();
    this.#stream = undefined;
    this.#unregister();
  }

  /** Closing the client does not concern a reader that has no stream and is not waiting. */
  #unregister(): void {
    if (this.#stream === undefined && !this.#isReading) this.#channel.readers.delete(this);
  }

  /** Returns how long an attempt to open a stream may take, in milliseconds. */
  #timeoutMs(deadline: number, follows: boolean): number {
    // Only a loss starts the time to reconnect: the first attempt, and one after a stream that ended, get the whole
    // timeout.
    const due = follows ? (this.#lostAt ?? Infinity) + this.#reconnectMs : deadline;
    return Math.min(this.#channel.timeoutMs, Math.max(1, due - performance.now()));
  }

  /** Returns how long to wait before another attempt, in milliseconds; `undefined` if there is none. */
  #waitMs(failed: number, askedMs: number, follows: boolean): number | undefined {
    const { retry } = this.#channel;
    if (!follows) return waitMs(retry, failed, askedMs);
    const policy = this.#wasReached ? { ...retry, attemptsMax: Infinity, waitMaxMs: reconnectWaitMsMax } : retry;
    const drawn = waitMs(policy, failed, askedMs);
    if (drawn === undefined) return undefined;
    const pause = Math.min(drawn, reconnectWaitMsMax);
    return performance.now() + pause < (this.#lostAt ?? Infinity) + this.#reconnectMs ? pause : undefined;
  }

  /** Waits until `close` or the signal ends the wait; the caller determines which one did. */
  async #interruptible<T>(wait: (stop: AbortSignal) => Promise<T>): Promise<T> {
    const waiting = new AbortController();
    this.#waiting = waiting;
    const unlisten = onAbort(this.#signal, () => {
      waiting.abort();
    });
    try {
      return await wait(waiting.signal);
    } finally {
      unlisten();
      this.#waiting = undefined;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<LogRecord, void, undefined> {
    this.#refuseSecond();
    // Only a stream that was opened without a wait reports the end of the log.
    if (this.#options.follow === false) this.#end();
    this.#lostAt = undefined;
    const follows = this.#options.follow !== false;
    // Streams without a wait would follow each other without a pause.
    const wait = !follows ? 0 : this.#waitMsDefault > 0 ? this.#waitMsDefault : recordWaitMs;
    try {
      // A call first resets the closed state of the reader.
      do {
        const record = await this.#call(wait, follows);
        if (record !== undefined) yield record;
        else if (!follows) return;
      } while (!this.#wasClosed());
    } finally {
      this.#end();
    }
  }

  async #open(wait: number, timeoutMs: number): Promise<LineStream> {
    const { pageMax: limit } = this.#options;
    const log = this.#log;
    const query = {
      store: this.#store,
      after: this.#offset,
      ...(log === undefined ? {} : { log }),
      ...(limit === undefined ? {} : { limit }),
      wait_ms: wait,
    };
    return this.#interruptible((stop) => this.#channel.openLog(query, timeoutMs, stop));
  }

  async #line(stream: LineStream, waitMs: number): Promise<string | undefined> {
    const unlisten = onAbort(this.#signal, () => {
      stream.close();
    });
    try {
      return await stream.line(waitMs);
    } finally {
      unlisten();
    }
  }

  #take(line: string): Step {
    try {
      return this.#parse(line);
    } catch (cause) {
      if (cause instanceof TribunalError) throw cause;
      throw new ServerMisbehaved(`a line of the log cannot be parsed: ${String(cause)}`);
    }
  }

  #parse(line: string): Step {
    const parsed = JSON.parse(line) as LogEvent | WireRecord;
    if ("event" in parsed) return this.#follow(parsed);
    const record = recordOf(parsed, line, BigInt(this.#offset) + 1n);
    this.#offset = record.lsn;
    if (BigInt(this.#head) < BigInt(record.lsn)) this.#head = record.lsn;
    // Further records of its own epoch may follow.
    this.#covers(BigInt(record.epoch) - 1n);
    return record;
  }

  #covers(epoch: bigint): void {
    if (BigInt(this.#epoch) < epoch) this.#epoch = epoch.toString();
  }

  #follow({ event, log, epoch, head_lsn, reason, problem }: LogEvent): Step {
    if (epoch !== undefined) this.#covers(BigInt(epoch));
    this.#log = log ?? this.#log;
    this.#head = head_lsn ?? this.#head;
    if (event !== "end") return "further";
    // Another endpoint may have the records, so the next stream is requested from all of them.
    if (problem?.code === "log_truncated" && this.#channel.endpoints > 1) return "limit";
    if (problem !== undefined) throw errorOf(problem);
    if (reason === "idle" || reason === "limit") return reason;
    throw new Unavailable(`the log stream has ended: ${reason ?? "no reason"}`);
  }
}

/** Converts a record, which must be the one that is due. */
function recordOf(record: WireRecord, line: string, due: bigint): LogRecord {
  if (record.lsn !== due.toString() || record.prev_lsn !== (due - 1n).toString()) {
    throw new ServerMisbehaved(`log record ${record.lsn} (after ${record.prev_lsn}) where ${due} was expected`);
  }
  const writes = record.writes.map((write) => {
    const key = keyOf(write.key, write.key_b64);
    if (key === undefined) throw new ServerMisbehaved(`log record ${record.lsn} has a row without a key`);
    return { op: write.op, key, value: valueOf(write) };
  });
  if (record.checksum !== undefined) {
    const found = checksumOf(record, line, writes.map(({ key }) => key));
    if (found !== record.checksum) throw new ServerMisbehaved(`log record ${record.lsn} has checksum ${found}, not ${record.checksum}`);
  }
  return {
    lsn: record.lsn,
    epoch: record.epoch,
    csn: record.csn,
    version: record.version,
    txnId: record.txn_id,
    store: record.store,
    traceparent: record.traceparent,
    writes,
  };
}

/** Merges the two wire fields of a value. A binary value keeps the form in which it is stored. */
export function valueOf(wire: { value?: unknown; value_b64?: string }): JsonValue | undefined {
  return wire.value_b64 === undefined ? (wire.value as JsonValue | undefined) : { $b64: wire.value_b64 };
}
