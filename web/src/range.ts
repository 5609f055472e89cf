// Which values have the first and the last colour: of the step that is shown, of all steps (of a recording, which says what they have; else of those
// that were shown), or as the user says. Each volume has its own, as one may be a temperature and the next a pressure.

export type Span = 'series' | 'step' | 'fixed';
export type Pair = [number, number];

/** Room above what has been seen of a series, of its width: else each step that rises a little would have all loaded again. */
const ROOM = 0.04;

export class Range {
  span: Span = 'series';
  /** Least and greatest of the values that count. */
  private found: Pair | null = null;
  private shown: Pair | null = null;
  /** What all steps of a recording have, once it has said so. */
  private known: Pair | null = null;
  /** What the values are of: of a step that has none there is no range. */
  private key = '';
  private empty = '';

  /** The range by which what `key` names is to be loaded; null: by that of its own values, which [`take`] hears of. */
  at(key: string): Pair | null {
    if (this.span === 'step' && key !== this.key) this.forget();
    this.key = key;
    return this.shown ?? (this.empty === key ? [0, 1] : null);
  }

  /** Values of what `key` names have come: the least and the greatest of them, or null. Answers whether the range is another. */
  take(key: string, min: number | null, max: number | null): boolean {
    if (this.span === 'fixed' || (this.span === 'step' && key !== this.key)) return false;
    if (min === null || max === null) {
      this.empty = key;
      return false;
    }
    const before = this.found, [low, high] = singles([min, max]), least = Math.min(before?.[0] ?? low, low), most = Math.max(before?.[1] ?? high, high);
    this.found = [least, most];
    const alone = before === null || before[0] === before[1];
    if (this.shown && least >= this.shown[0] && most <= this.shown[1] && (!alone || least === most)) return false;
    this.shown = around(least, most + (this.span === 'series' ? ROOM * (most - least) : 0));
    return true;
  }

  /** What all steps of a recording have, whether they were shown or not: a step must not change its colours because another was looked at. Answers as `take`. */
  know(said: Pair | null): boolean {
    const all = said && singles(said);
    if (!all || this.span !== 'series' || (this.known && this.known[0] <= all[0] && all[1] <= this.known[1])) return false;
    // One that still grows has room from the second time on; values that came before it was known are no growth.
    const room = this.known ? ROOM * (all[1] - all[0]) : 0;
    this.known = this.found = all;
    this.shown = around(all[0], all[1] + room);
    return true;
  }

  get now(): Pair | null {
    return this.shown;
  }

  /** From now on this one; a single value is its middle. */
  fix([from, to]: Pair): void {
    this.span = 'fixed';
    this.shown = around(from, to);
  }

  /** From now on as values have it; nothing that was seen before counts. */
  follow(span: 'series' | 'step'): void {
    this.span = span;
    this.forget();
  }

  private forget(): void {
    this.found = this.shown = this.known = null;
    this.empty = '';
  }
}

/** As float32, which all values are: one value may be written in more digits by one who says it than by another. */
function singles([from, to]: Pair): Pair {
  return [Math.fround(from), Math.fround(to)];
}

/** A range that has a width: one value lies in its middle, where there is colour, and is not as if nothing were there. */
function around(from: number, to: number): Pair {
  if (from < to) return [from, to];
  const half = Math.abs(from) / 2 || 1;
  return [from - half, from + half];
}

/** The range in as few digits as tell a thousandth of it apart, and nothing of it left out. */
export function written([from, to]: Pair): [string, string] {
  const digit = Math.floor(Math.log10(to - from)) - 3;
  // Powers of ten below 1e-307 are not exact; there all digits are written.
  const round = (value: number, way: (value: number) => number) => {
    const unit = 10 ** Math.abs(digit), units = digit < 0 ? value * unit : value / unit;
    if (!Number.isFinite(unit) || Math.abs(units) > 2 ** 52) return String(value);
    return String(Number((digit < 0 ? way(units) / unit : way(units) * unit).toPrecision(15)));
  };
  return [round(from, Math.floor), round(to, Math.ceil)];
}
