// Choice of rows: the Zipf generator of YCSB (Gray et al., "Quickly generating billion-record synthetic databases").

// Returns a function that draws 0..count-1, 0 most often; `theta` below 1.
export function zipf(count, theta) {
  let zeta = 0;
  for (let rank = 1; rank <= count; rank += 1) zeta += 1 / rank ** theta;
  const zeta2 = 1 + 0.5 ** theta;
  const alpha = 1 / (1 - theta);
  const eta = (1 - (2 / count) ** (1 - theta)) / (1 - zeta2 / zeta);
  return () => {
    const u = Math.random();
    if (u * zeta < 1) return 0;
    if (u * zeta < zeta2) return 1;
    return Math.min(count - 1, Math.floor(count * (eta * u - eta + 1) ** alpha));
  };
}
