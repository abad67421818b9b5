/** Finds the intended name for a misspelled one. */

/** Returns the known name most similar to an unknown one, if any is similar enough. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const distances = known.map((one) => ({ one, distance: distanceOf(plain(name), plain(one)) }));
  const [best] = distances.sort((a, b) => a.distance - b.distance);
  // In a short name, few different letters make it another name.
  return best !== undefined && best.distance <= Math.max(1, Math.floor(best.one.length / 3)) ? best.one : undefined;
}

/** Normalizes spellings of one name, such as `waitMs` and `wait_ms`. */
function plain(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, "");
}

/** Returns the edit distance: the number of letters to insert, delete or replace. */
function distanceOf(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  Array.from(one).forEach((letter, at) => {
    const next = [at + 1];
    Array.from(other).forEach((known, column) => {
      const replaced = (row[column] ?? 0) + (letter === known ? 0 : 1);
      next.push(Math.min(replaced, (row[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1));
    });
    row = next;
  });
  return row.at(-1) ?? 0;
}
