/** Finds what was meant by a misspelled name. */

/** Returns the known name that is most like one that is not known, if any is like it. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const distances = known.map((one) => ({ one, distance: distanceOf(plain(name), plain(one)) }));
  const [best] = distances.sort((a, b) => a.distance - b.distance);
  // In a short name, few letters make another one.
  return best !== undefined && best.distance <= Math.max(1, Math.floor(best.one.length / 3)) ? best.one : undefined;
}

/** Other spellings of one name, such as `waitMs` and `wait_ms`, are the same. */
function plain(name: string): string {
  return name.toLowerCase().replace(/[_-]/g, "");
}

/** Counts the letters that have to be inserted, deleted or replaced. */
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
